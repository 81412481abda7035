package apitest

import "context"

// trusting is a node without sandboxes, which all trust at once what they are told.
type trusting struct{}

func (trusting) Trust(context.Context, string, []byte) error { return nil }
