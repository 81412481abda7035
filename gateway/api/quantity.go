package api

import (
	"math"
	"strconv"
	"strings"
)

var byteUnits = []struct {
	suffix string
	bytes  int64
}{{"Ki", 1 << 10}, {"Mi", 1 << 20}, {"Gi", 1 << 30}, {"k", 1e3}, {"M", 1e6}, {"G", 1e9}, {"", 1}}

// parseBytes reads a quantity of memory as Kubernetes writes it: 512Mi, 2Gi, 1000000.
func parseBytes(s string) (int64, bool) {
	for _, u := range byteUnits {
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

// parseCPUs reads a quantity of processors in thousandths: 2, 0.5, 500m.
func parseCPUs(s string) (int64, bool) {
	if milli, ok := strings.CutSuffix(s, "m"); ok {
		n, err := strconv.ParseUint(milli, 10, 31)
		return int64(n), err == nil && n > 0
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
