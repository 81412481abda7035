package inbound

import (
	"strconv"
	"strings"
)

// Ports is a port between 1 and 65535, or a range of them: 3000, or 8000-8099.
type Ports string

// Has reports whether port is among them. What can't be read holds none.
func (p Ports) Has(port uint16) bool {
	first, last, ok := p.ends()
	return ok && first <= port && port <= last
}

func (p Ports) ends() (first, last uint16, ok bool) {
	from, to, ranged := strings.Cut(string(p), "-")
	if !ranged {
		to = from
	}
	first, ok = number(from)
	last, ok2 := number(to)
	return first, last, ok && ok2 && first <= last
}

func number(s string) (uint16, bool) {
	n, err := strconv.ParseUint(s, 10, 16)
	return uint16(n), err == nil && n > 0 && s[0] != '+'
}
