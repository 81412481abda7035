package config

import (
	"fmt"
	"strconv"
	"strings"
)

var units = []struct {
	suffix string
	bytes  int64
}{{"Ki", 1 << 10}, {"Mi", 1 << 20}, {"Gi", 1 << 30}, {"Ti", 1 << 40}, {"k", 1e3}, {"M", 1e6}, {"G", 1e9}, {"T", 1e12}, {"", 1}}

// Bytes reads a quantity of memory as Kubernetes writes it: 512Mi, 2Gi, 1000000.
func Bytes(s string) (int64, error) {
	for _, u := range units {
		digits, ok := strings.CutSuffix(s, u.suffix)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(digits, 10, 64)
		if err != nil || n <= 0 || n > (1<<62)/u.bytes {
			break
		}
		return n * u.bytes, nil
	}
	return 0, fmt.Errorf("%q is not a quantity like 512Mi or 2Gi", s)
}

// Millis reads a quantity of processors: 2, 500m, 1.5.
func Millis(s string) (int64, error) {
	if digits, ok := strings.CutSuffix(s, "m"); ok {
		if n, err := strconv.ParseInt(digits, 10, 32); err == nil && n > 0 {
			return n, nil
		}
	} else if f, err := strconv.ParseFloat(s, 64); err == nil && f > 0 && f <= 1024 {
		return int64(f * 1000), nil
	}
	return 0, fmt.Errorf("%q is not a number of processors like 2 or 500m", s)
}
