package main

import (
	"errors"
	"maps"
	"os"
	"path"
	"strings"

	"portreeve.dev/nodes/guest/frame"
)

const envPrefix = "PORTREEVE_ENV_"

// defaultEnv is what user processes get where the caller says nothing else.
func defaultEnv(own []string) map[string]string {
	const path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	env := map[string]string{"PATH": path, "HOME": workspace, "USER": "sandbox", "LANG": "C.UTF-8"}
	for _, pair := range own {
		name, value, _ := strings.Cut(pair, "=")
		if name, ours := strings.CutPrefix(name, envPrefix); ours && name != "" {
			env[name] = value
		}
	}
	return env
}

func environment(defaults map[string]string, m frame.ExecMessage) map[string]string {
	env := make(map[string]string)
	if m.TTY != nil {
		env["TERM"] = "xterm-256color"
	}
	maps.Copy(env, defaults)
	maps.Copy(env, m.Env)
	return env
}

func list(env map[string]string) []string {
	var pairs []string
	for name, value := range env {
		pairs = append(pairs, name+"="+value)
	}
	return pairs
}

// lookup finds the program and the folder as the user sees them, for answers that say which of the two is missing.
// The kernel still has the last word at the start.
func lookup(m frame.ExecMessage, searchPath string) (program, dir string, err error) {
	dir = m.Cwd
	if !path.IsAbs(dir) {
		dir = path.Join(workspace, dir)
	}
	err = asUser(func() error {
		info, err := os.Stat(dir)
		if err != nil {
			return fault(frame.CodeNoCwd, "%v", err)
		}
		if !info.IsDir() {
			return fault(frame.CodeNoCwd, "%s: not a folder", dir)
		}
		program, err = find(m.Argv[0], dir, searchPath)
		return err
	})
	return program, dir, err
}

func find(name, dir, searchPath string) (string, error) {
	if strings.Contains(name, "/") {
		if !path.IsAbs(name) {
			name = dir + "/" + name
		}
		return name, executable(name)
	}
	var missing error = fault(frame.CodeNoCommand, "%s: not found in PATH", name)
	for _, folder := range strings.Split(searchPath, ":") {
		if !path.IsAbs(folder) {
			folder = path.Join(dir, folder)
		}
		full := folder + "/" + name
		err := executable(full)
		if err == nil {
			return full, nil
		}
		if f, ok := errors.AsType[*failure](err); ok && f.Code == frame.CodeNotExecutable {
			missing = err
		}
	}
	return "", missing
}

func executable(full string) error {
	info, err := os.Stat(full)
	switch {
	case os.IsPermission(err):
		return fault(frame.CodeNotExecutable, "%v", err)
	case err != nil:
		return fault(frame.CodeNoCommand, "%v", err)
	case !info.Mode().IsRegular() || info.Mode().Perm()&0o111 == 0:
		return fault(frame.CodeNotExecutable, "%s: not an executable file", full)
	}
	return nil
}
