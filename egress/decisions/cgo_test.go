//go:build cgo

package decisions_test

// A build with cgo, as the race detector needs, makes threads through libc. What ships has none.
func init() { sqliteCalls = append(sqliteCalls, "clone3", "set_robust_list", "rseq", "mremap") }
