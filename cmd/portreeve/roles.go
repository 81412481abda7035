package main

import (
	"github.com/spf13/cobra"

	"portreeve.dev/gateway/server"
)

// roles are the commands that the supervisor starts; they are of no use to anybody else.
func roles() []*cobra.Command {
	return []*cobra.Command{
		{Use: "control", Hidden: true, Args: exactly(), RunE: func(c *cobra.Command, _ []string) error { return server.Control(c.Context()) }},
		{Use: "ingress", Hidden: true, Args: exactly(), RunE: func(c *cobra.Command, _ []string) error { return server.Ingress(c.Context()) }},
	}
}
