package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"github.com/spf13/cobra"

	"portreeve.dev/gateway/client"
	"portreeve.dev/gateway/config"
	"portreeve.dev/gateway/release"
	"portreeve.dev/gateway/supervisor"
)

type devFlags struct{ state, http, https, config string }

func (a *app) dev() *cobra.Command {
	var f devFlags
	c := &cobra.Command{
		Use:   "dev",
		Short: "Start everything on this machine, for development; ends with its sandboxes at Ctrl-C",
		Args:  exactly(),
		RunE:  func(c *cobra.Command, _ []string) error { return a.runDev(c.Context(), f, c.Flags().Changed("info")) },
	}
	c.Flags().StringVar(&f.state, "state", defaultState, "directory for everything that is kept")
	c.Flags().StringVar(&f.http, "http", "127.0.0.1:8080", "address of the API and the console")
	c.Flags().StringVar(&f.https, "https", "127.0.0.1:8443", "address of the tunnels")
	c.Flags().StringVar(&f.config, "config", "", "configuration file (YAML)")
	return c
}

func (a *app) runDev(ctx context.Context, f devFlags, ownInfo bool) error {
	settings, err := config.Load(f.config)
	if err != nil {
		return err
	}
	state, err := filepath.Abs(f.state)
	if err != nil {
		return err
	}
	if !ownInfo {
		a.infoFile = filepath.Join(state, "info.json")
	}
	bin, err := programDir()
	if err != nil {
		return err
	}
	var screen sync.Once
	a.say("portreeve %s is starting ...", release.Version())
	s, err := supervisor.New(supervisor.Config{
		StateDir: state, HTTP: f.http, HTTPS: f.https, Settings: settings, BinDir: bin, Purge: true,
		Log: slog.New(slog.NewTextHandler(a.err, nil)),
		Changed: func(status supervisor.Status) {
			if err := writeInfo(a.infoFile, status); err != nil {
				a.say("portreeve: error: writing %s: %v", a.infoFile, err)
				return
			}
			screen.Do(func() { a.screen(status) })
		},
	})
	if err != nil {
		if errors.Is(err, os.ErrPermission) || os.Geteuid() != 0 {
			return &client.Hinted{Err: err, Hint: "sudo portreeve dev"}
		}
		return err
	}
	defer os.Remove(a.infoFile)
	err = s.Run(ctx)
	a.say("portreeve has stopped")
	return err
}

// writeInfo replaces the file as a whole: a reader sees the old one or the new one.
func writeInfo(path string, status supervisor.Status) error {
	data, err := json.MarshalIndent(status, "", "  ")
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".info-*") // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(append(data, '\n'))
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
