package supervisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"portreeve.dev/gateway/agent/spawn"
	"portreeve.dev/gateway/child"
	"portreeve.dev/gateway/link"
)

// Pauses before a dead process is started again; a process that lived for settled begins anew at the first.
const (
	firstPause = 50 * time.Millisecond
	lastPause  = 5 * time.Second
	settled    = 10 * time.Second
)

// How long a process may take to serve, and to end when asked.
const (
	startLimit = 60 * time.Second
	stopLimit  = 8 * time.Second
)

// A process keeps one role running.
type process struct {
	job    job
	broker *broker
	logDir string
	log    *slog.Logger
	up     chan struct{} // closed when it served for the first time
	once   sync.Once

	mu   sync.Mutex
	pid  int
	conn *link.Conn
}

// run starts the role and starts it again until ctx ends. A first start that fails ends it with that error.
func (p *process) run(ctx context.Context) error {
	pause := firstPause
	for n := 0; ctx.Err() == nil; n++ {
		began := time.Now()
		err := p.live(ctx, n > 0)
		if ctx.Err() != nil {
			return nil
		}
		select {
		case <-p.up:
		default:
			return fmt.Errorf("starting %s: %w", p.job.name, err)
		}
		if time.Since(began) > settled {
			pause = firstPause
		}
		p.log.Warn("process ended, starting it again", "process", p.job.name, "err", err, "pause", pause)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
		pause = min(2*pause, lastPause)
	}
	return nil
}

// live is one life of the process, from start to death.
func (p *process) live(ctx context.Context, restart bool) error {
	cmd, conn, err := p.spawn()
	if err != nil {
		return err
	}
	var reading sync.WaitGroup
	reading.Go(func() { conn.Run(context.Background()) })
	died := make(chan struct{})
	var exit error
	go func() {
		exit = cmd.Wait()
		conn.Close()
		close(died)
	}()
	serr := p.serve(ctx, cmd.Process.Pid, conn, restart)
	if serr == nil {
		select {
		case <-died:
		case <-ctx.Done():
			p.end(conn, died)
		}
	}
	p.set(0, nil)
	p.broker.down(p.job.name)
	conn.Close()
	kill(cmd, died)
	reading.Wait()
	return errors.Join(serr, exit)
}

// kill makes sure that the process is gone.
func kill(cmd *exec.Cmd, died chan struct{}) {
	select {
	case <-died:
		return
	case <-time.After(time.Second):
		cmd.Process.Kill()
		<-died
	}
}

func (p *process) serve(ctx context.Context, pid int, conn *link.Conn, restart bool) error {
	config, files, err := p.job.prepare(restart)
	if err != nil {
		return err
	}
	raw, err := json.Marshal(config)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	var ready child.Ready
	got, err := conn.CallFiles(ctx, "start", child.Start{Config: raw}, &ready, files...)
	closeAll(files) // the process has its own copies: with it gone nobody listens
	if err != nil {
		closeAll(got)
		return err
	}
	p.set(pid, conn)
	if p.job.ready == nil {
		closeAll(got)
	} else if err := p.job.ready(ready.Body, got); err != nil {
		return err
	}
	p.broker.up(p.job.name, conn)
	p.once.Do(func() { close(p.up) })
	return nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

// end asks the process to end, gives it stopLimit, and closes its socket.
func (p *process) end(conn *link.Conn, died <-chan struct{}) {
	ctx, cancel := context.WithTimeout(context.Background(), stopLimit)
	defer cancel()
	if err := conn.Call(ctx, "stop", struct{}{}, nil); err != nil && !errors.Is(err, link.ErrClosed) {
		p.log.Warn("process did not stop cleanly", "process", p.job.name, "err", err)
	}
	conn.Close()
	select {
	case <-died:
	case <-ctx.Done():
	}
}

func (p *process) spawn() (*exec.Cmd, *link.Conn, error) {
	mine, theirs, err := link.Pair()
	if err != nil {
		return nil, nil, err
	}
	defer theirs.Close()
	socket, err := link.Socket(mine)
	if err != nil {
		return nil, nil, err
	}
	stderr, err := os.OpenFile(filepath.Join(p.logDir, p.job.name+".log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		socket.Close()
		return nil, nil, fmt.Errorf("opening the log of %s: %w", p.job.name, err)
	}
	defer stderr.Close()
	cmd := exec.Command(p.job.binary, p.job.args...)
	cmd.Dir, cmd.Env = "/", environment(p.job.uid)
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = stderr, stderr, []*os.File{theirs}
	rights := spawn.Rights{UID: p.job.uid, GID: p.job.uid, Keep: p.job.keep}
	if p.job.netns != nil {
		rights.Netns = p.job.netns()
	}
	if err := spawn.Start(cmd, rights); err != nil {
		socket.Close()
		return nil, nil, err
	}
	return cmd, link.NewConn(socket, p.mux(), link.Limits{}), nil
}

// environment holds nothing of the caller's but what root's tools need: no proxy, no credentials.
func environment(uid uint32) []string {
	if uid != 0 {
		return []string{}
	}
	return []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LANG=C.UTF-8"}
}

func (p *process) set(pid int, conn *link.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pid, p.conn = pid, conn
}

func (p *process) current() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pid
}

// mux is what a child may say unasked: that it lost a sibling.
func (p *process) mux() *link.Mux {
	mux := link.NewMux()
	link.Handle(mux, "lost", func(_ context.Context, peer child.Peer) (struct{}, error) {
		p.broker.lost(p.job.name, peer)
		return struct{}{}, nil
	})
	return mux
}
