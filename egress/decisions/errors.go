package decisions

import "errors"

// Why a decision was not recorded. The caller refuses the connection on every one of them.
var (
	ErrFull   = errors.New("spool is full")
	ErrShare  = errors.New("the org's share of the spool is full")
	ErrBudget = errors.New("the sandbox's decision budget is spent")
	ErrClosed = errors.New("spool is closed")
)
