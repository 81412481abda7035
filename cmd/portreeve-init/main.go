package main

import (
	"crypto/rand"
	"encoding/hex"
	"log"
	"os"
	"os/signal"
	"runtime"
	"syscall"
)

const (
	userID                   = 1001
	workspace, socketPath    = "/workspace", "/run/portreeve/init.sock"
	maxStreams, maxProcesses = 256, 512
	prSetNoNewPrivs          = 38
)

// The first thread stays with the main goroutine: asUser changes the rights of threads that it throws away, and this one can't be.
func init() { runtime.LockOSThread() }

func main() {
	log.SetFlags(0)
	log.SetPrefix("portreeve-init: ")
	if os.Getpid() != 1 {
		log.Fatal("error: not process 1 of a sandbox")
	}
	syscall.Umask(0o022)
	if _, _, errno := syscall.AllThreadsSyscall(syscall.SYS_PRCTL, prSetNoNewPrivs, 1, 0); errno != 0 {
		log.Fatalf("error: setting no_new_privs: %v", errno)
	}
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGCHLD, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)

	var boot [16]byte
	rand.Read(boot[:])
	s := &server{
		boot:     hex.EncodeToString(boot[:]),
		table:    &table{live: make(map[int]*process)},
		slots:    make(chan struct{}, maxStreams),
		defaults: defaultEnv(os.Environ()),
	}
	go s.serve()
	for sig := range signals {
		switch sig {
		case syscall.SIGCHLD:
			s.table.reap()
		case syscall.SIGTERM, syscall.SIGINT:
			go shutdown()
		}
	}
}
