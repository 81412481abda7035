package quantity

import (
	"math"
	"strconv"
	"strings"
)

var units = []struct {
	suffix string
	bytes  int64
}{{"Ki", 1 << 10}, {"Mi", 1 << 20}, {"Gi", 1 << 30}, {"Ti", 1 << 40}, {"k", 1e3}, {"M", 1e6}, {"G", 1e9}, {"T", 1e12}, {"", 1}}

// Bytes reads a quantity of memory: 512Mi, 2Gi, 1000000.
func Bytes(s string) (int64, bool) {
	for _, u := range units {
		number, ok := strings.CutSuffix(s, u.suffix)
		if !ok {
			continue
		}
		n, err := strconv.ParseUint(number, 10, 63)
		if err != nil || n == 0 || int64(n) > math.MaxInt64/u.bytes {
			return 0, false
		}
		return int64(n) * u.bytes, true
	}
	return 0, false
}
