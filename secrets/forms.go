package secrets

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"html"
	"net/url"
	"slices"
	"strings"
)

// shortestForm is how long a form must be to be looked for, in bytes. What is shorter stands in answers by chance, and to see which
// bytes are replaced would tell it.
const shortestForm = 8

// forms lists how a value may stand in an answer, once each: as it is, percent-encoded, as JSON and HTML write it, and in base64, by
// itself or in the middle of something longer. basic says that the value is user and password in base64, as the Basic scheme
// has them (RFC 7617); then the password has its forms too.
func forms(value []byte, basic bool) (list [][]byte) {
	all := formsOf(string(value))
	if basic {
		_, password, _ := strings.Cut(decoded(string(value)), ":")
		all = append(all, formsOf(password)...)
	}
	all = slices.DeleteFunc(all, func(f string) bool { return len(f) < shortestForm })
	slices.Sort(all)
	for _, f := range slices.Compact(all) {
		list = append(list, []byte(f))
	}
	return list
}

func formsOf(value string) []string {
	if len(value) < shortestForm {
		return nil
	}
	quoted, _ := json.Marshal(value) // of a string there is no error
	loose := strings.NewReplacer(`\u003c`, "<", `\u003e`, ">", `\u0026`, "&").Replace(string(quoted))
	all := []string{value, html.EscapeString(value), string(quoted[1 : len(quoted)-1]), loose[1 : len(loose)-1]}
	for _, escaped := range []string{url.QueryEscape(value), url.PathEscape(value), escapedWhole(value)} {
		all = append(all, escaped, lowerEscapes(escaped))
	}
	for before := range 3 {
		middle := inBase64(value, before)
		all = append(all, middle, strings.NewReplacer("+", "-", "/", "_").Replace(middle))
	}
	return all
}

// inBase64 is what of value's base64 is the same whatever stands around it, behind so many bytes modulo 3: each character has six
// bits, and those that share some with a neighbour are left out.
func inBase64(value string, before int) string {
	text := base64.RawStdEncoding.EncodeToString(append(make([]byte, before), value...))
	return text[(before*8+5)/6 : (before+len(value))*8/6]
}

// decoded is what base64 text says; empty if it is none.
func decoded(text string) string {
	clear, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(text, "="))
	if err != nil {
		return ""
	}
	return string(clear)
}

// escapedWhole escapes what a URL may hold as it is, too, but letters and digits.
func escapedWhole(value string) string {
	var b strings.Builder
	for _, c := range []byte(value) {
		if c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'z' {
			b.WriteByte(c)
			continue
		}
		b.WriteString("%" + strings.ToUpper(hex.EncodeToString([]byte{c})))
	}
	return b.String()
}

// lowerEscapes writes the digits of percent-escapes in lower case.
func lowerEscapes(escaped string) string {
	b := []byte(escaped)
	for i := 0; i+2 < len(b); i++ {
		if b[i] == '%' {
			copy(b[i:], strings.ToLower(escaped[i:i+3]))
			i += 2
		}
	}
	return string(b)
}
