package decisions

import "errors"

// Why a decision was not recorded. The caller refuses the connection on every one of them, but where an org chose to go on
// without a record.
var (
	ErrFull   = errors.New("spool is full")
	ErrShare  = errors.New("the org's share of the spool is full")
	ErrBudget = errors.New("the sandbox's decision budget is spent")
	ErrClosed = errors.New("spool is closed")
	ErrMoved  = errors.New("the spool's file was moved away or deleted; it is made anew once what it holds is shipped")

	// ErrUncounted comes beside the others when not even the loss could be written down: then nobody may go on.
	ErrUncounted = errors.New("the loss could not be counted")
)

// errDecision is what a caller did wrong.
var errDecision = errors.New("not a decision that can be recorded")
