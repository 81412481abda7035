package nodes

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"portreeve.dev/nodes/runsc"
)

// A record is what must be known of a sandbox after a restart. Its OCI spec lies beside it, in bundle/config.json.
type record struct {
	Version  int       `json:"version"`
	RunscID  string    `json:"runsc_id"`
	State    State     `json:"state"`
	Spec     Spec      `json:"spec"`
	Digest   string    `json:"digest"` // of the image
	Link     Link      `json:"link"`
	Pid      int       `json:"pid"`       // 0: not created
	PidStart uint64    `json:"pid_start"` // in clock ticks since boot
	BootID   string    `json:"boot_id"`   // of the machine: start times of another boot mean nothing
	Created  time.Time `json:"created"`
}

const recordVersion = 1

func (r record) placement() Placement {
	return Placement{
		Sandbox: r.Spec.Sandbox, Org: r.Spec.Org, Addr: r.Link.Addr, Gateway: r.Link.Gateway, Interface: r.Link.Interface, Netns: r.Link.Netns,
		RunscID: r.RunscID, Incarnation: r.Spec.Incarnation, Generation: r.Spec.Generation, MinRevision: r.Spec.MinRevision, Pid: r.Pid,
	}
}

func (r record) status() Status {
	return Status{Placement: r.placement(), State: r.State, Image: r.Spec.Image, Digest: r.Digest, Limits: r.Spec.Limits,
		Created: r.Created, Deadline: r.Spec.Deadline}
}

// dirs names the places below the state directory.
type dirs struct{ state string }

func (d dirs) guest() string              { return filepath.Join(d.state, "guest") }
func (d dirs) sandboxes() string          { return filepath.Join(d.state, "node", "sandboxes") }
func (d dirs) box(id string) string       { return filepath.Join(d.sandboxes(), id) }
func (d dirs) bundle(id string) string    { return filepath.Join(d.box(id), "bundle") }
func (d dirs) control(id string) string   { return filepath.Join(d.box(id), "control") }
func (d dirs) workspace(id string) string { return filepath.Join(d.box(id), "workspace") }
func (d dirs) trust(id string) string     { return filepath.Join(d.box(id), "trust") }
func (d dirs) roots(id string) string     { return filepath.Join(d.box(id), "roots.pem") } // of the image
func (d dirs) resolv(id string) string    { return filepath.Join(d.box(id), "resolv.conf") }
func (d dirs) hosts(id string) string     { return filepath.Join(d.box(id), "hosts") }
func (d dirs) record(id string) string    { return filepath.Join(d.box(id), "record.json") }

func (d dirs) make() error {
	if err := os.MkdirAll(d.sandboxes(), 0o700); err != nil {
		return err
	}
	// Init runs from here, and gofers need not be root everywhere.
	if err := os.MkdirAll(d.guest(), 0o755); err != nil {
		return err
	}
	return os.Chmod(filepath.Join(d.state, "node"), 0o700)
}

// furnish makes the directories and files of one sandbox.
func (d dirs) furnish(r record) error {
	for _, dir := range []string{d.bundle(r.RunscID), d.control(r.RunscID), d.workspace(r.RunscID)} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return err
		}
	}
	// The workspace's own rights are those that the sandbox sees.
	if err := os.Chown(d.workspace(r.RunscID), runsc.UserID, runsc.UserID); err != nil {
		return err
	}
	if err := os.Chmod(d.workspace(r.RunscID), 0o755); err != nil {
		return err
	}
	resolv := "nameserver " + r.Link.Gateway.String() + "\n"
	hosts := "127.0.0.1 localhost\n" + r.Link.Addr.String() + " " + hostname(r.Spec.Sandbox) + "\n"
	return errors.Join(
		os.WriteFile(d.resolv(r.RunscID), []byte(resolv), 0o644),
		os.WriteFile(d.hosts(r.RunscID), []byte(hosts), 0o644))
}

// save replaces the record; it is durable when save returns.
func (d dirs) save(r record) error {
	if !runsc.ValidID(r.RunscID) {
		return fmt.Errorf("container id %q", r.RunscID)
	}
	b, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	if err := os.Mkdir(d.box(r.RunscID), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	} else if err == nil {
		if err := syncDir(d.sandboxes()); err != nil {
			return err
		}
	}
	path := d.record(r.RunscID)
	f, err := os.OpenFile(path+".new", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(path+".new", path); err != nil {
		return err
	}
	return syncDir(d.box(r.RunscID))
}

// load returns all records. A directory without a readable one comes as a record with nothing but its container id, to be
// removed: nothing of it can run under rules that we know.
func (d dirs) load() ([]record, error) {
	entries, err := os.ReadDir(d.sandboxes())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	var all []record
	for _, e := range entries {
		if !runsc.ValidID(e.Name()) {
			continue // not ours
		}
		r := record{RunscID: e.Name(), State: Deleting}
		b, err := os.ReadFile(d.record(e.Name()))
		if err == nil {
			var got record
			if json.Unmarshal(b, &got) == nil && got.Version == recordVersion && got.RunscID == e.Name() {
				r = got
			}
		}
		all = append(all, r)
	}
	return all, nil
}

// remove removes everything of one sandbox, the record last.
func (d dirs) remove(id string) error {
	box := d.box(id)
	entries, err := os.ReadDir(box)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() != filepath.Base(d.record(id)) {
			if err := os.RemoveAll(filepath.Join(box, e.Name())); err != nil {
				return err
			}
		}
	}
	if err := os.RemoveAll(box); err != nil {
		return err
	}
	return syncDir(d.sandboxes())
}

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// hostname is short and tells sandboxes apart: the end of a UUIDv7 is its random part.
func hostname(sandbox string) string {
	b := make([]byte, 0, 12)
	for i := len(sandbox) - 1; i >= len("sbx_") && len(b) < 12; i-- {
		c := sandbox[i]
		switch {
		case c >= 'A' && c <= 'Z':
			b = append(b, c+'a'-'A')
		case c != '-':
			b = append(b, c)
		}
	}
	for i, j := 0, len(b)-1; i < j; i, j = i+1, j-1 {
		b[i], b[j] = b[j], b[i]
	}
	return "sbx-" + string(b)
}
