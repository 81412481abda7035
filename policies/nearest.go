package policies

import (
	"fmt"
	"strings"
)

// Nearest is a hint for an unknown key: the known one that it was perhaps meant to be, or all of them.
func Nearest(key string, known []string) string {
	best, distance := "", 4
	for _, k := range known {
		if d := editDistance(key, k); d < distance && d < len(k) {
			best, distance = k, d
		}
	}
	if best != "" {
		return fmt.Sprintf("did you mean %q?", best)
	}
	return "known are " + strings.Join(known, ", ")
}

// editDistance is Levenshtein's, over the bytes of two short words.
func editDistance(a, b string) int {
	if len(a) > 64 {
		return len(a)
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
