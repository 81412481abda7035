package server

import (
	"io/fs"
	"time"

	"portreeve.dev/nodes/guest"
	"portreeve.dev/nodes/guest/frame"
)

// The API speaks in the protocol's messages, the guest's client in Go's types.

func execOf(m frame.ExecMessage, out *outputs) guest.Exec {
	return guest.Exec{Argv: m.Argv, Env: m.Env, Cwd: m.Cwd, TTY: m.TTY, Stdin: m.Stdin, Detach: m.Detach,
		Timeout: time.Duration(m.TimeoutMS) * time.Millisecond, Stdout: stream{out, false}, Stderr: stream{out, true}}
}

func exitOf(e guest.Exit) frame.ExitMessage {
	return frame.ExitMessage{Code: e.Code, Signal: int(e.Signal), TimedOut: e.TimedOut}
}

func infoOf(f guest.FileInfo) frame.InfoMessage {
	return frame.InfoMessage{Name: f.Name, Kind: f.Kind, Size: f.Size, Mode: uint32(f.Mode.Perm()), Modified: f.Modified.UnixMilli()}
}

func writeOptions(m frame.WriteMessage) guest.WriteOptions {
	return guest.WriteOptions{Mode: fs.FileMode(m.Mode), Mkdirs: m.Mkdirs}
}
