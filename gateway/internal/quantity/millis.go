package quantity

import (
	"strconv"
	"strings"
)

// Millis reads a quantity of processors in thousandths: 2, 0.5, 500m.
func Millis(s string) (int64, bool) {
	if milli, ok := strings.CutSuffix(s, "m"); ok {
		n, err := strconv.ParseUint(milli, 10, 31)
		if err != nil {
			return 0, false
		}
		return int64(n), n > 0
	}
	whole, part, _ := strings.Cut(s, ".")
	n, err := strconv.ParseUint(whole, 10, 20)
	if err != nil || len(part) > 3 || strings.HasSuffix(s, ".") {
		return 0, false
	}
	milli := int64(n) * 1000
	if part != "" {
		f, err := strconv.ParseUint((part + "00")[:3], 10, 31)
		if err != nil {
			return 0, false
		}
		milli += int64(f)
	}
	return milli, milli > 0
}
