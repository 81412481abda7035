package supervisor

import (
	"encoding/json"
	"os"
)

// Roles, and which of them talk to each other.
const (
	Node    = "node"
	Edge    = "edge"
	Inward  = "inward"
	Control = "control"
	Ingress = "ingress"
)

var links = [][2]string{
	{Node, Edge}, {Node, Inward}, {Node, Control},
	{Control, Edge}, {Control, Inward}, {Control, Ingress},
	{Ingress, Inward}, {Ingress, Node},
}

// A job is one process: how to start it and what to tell it.
type job struct {
	name   string
	binary string   // path of the program
	args   []string // after the program's name
	uid    uint32   // 0 is root with the capabilities in keep
	keep   []uintptr
	netns  func() *os.File // where it lives; nil is the supervisor's own
	// prepare returns the start message's body and files, made anew at each start; the files are closed after sending.
	prepare func(restart bool) (config any, files []*os.File, err error)
	// ready takes what the process answered; it owns the files.
	ready func(body json.RawMessage, files []*os.File) error
}
