package spawn

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"portreeve.dev/nodes/netns/thread"
)

const childEnv = "PORTREEVE_SPAWN_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		child()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// child tells what it is: its status, its namespace and its descriptors.
func child() {
	status, _ := os.ReadFile("/proc/self/status")
	os.Stdout.Write(status)
	ns, _ := os.Readlink("/proc/self/ns/net")
	fmt.Println("Netns:", ns)
	sid, _ := unix.Getsid(0)
	fmt.Println("Leads:", sid == os.Getpid())
	for fd := 3; fd < 100; fd++ {
		if target, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd)); err == nil && strings.HasPrefix(target, "/tmp/") {
			fmt.Printf("Fd%d: %s\n", fd, target)
		}
	}
}

// run starts this program anew with those rights and returns what it told.
func run(t *testing.T, r Rights, files ...*os.File) map[string]string {
	t.Helper()
	// Its folder is closed to other uids; this way leads past it.
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{childEnv + "=1"}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = &out, &out, files
	if err := Start(cmd, r); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, out.Bytes())
	}
	told := map[string]string{}
	for line := range strings.Lines(out.String()) {
		k, v, _ := strings.Cut(line, ":")
		told[k] = strings.Join(strings.Fields(v), " ")
	}
	return told
}

const none = "0000000000000000"

func TestChildHasNothing(t *testing.T) {
	told := run(t, Rights{UID: 1900000001, GID: 1900000001})
	for k, want := range map[string]string{
		"Uid": "1900000001 1900000001 1900000001 1900000001", "Gid": "1900000001 1900000001 1900000001 1900000001", "Groups": "",
		"CapInh": none, "CapPrm": none, "CapEff": none, "CapBnd": none, "CapAmb": none, "NoNewPrivs": "1", "Leads": "true",
	} {
		if told[k] != want {
			t.Errorf("%s is %q, want %q", k, told[k], want)
		}
	}
	// The parent is what it was.
	if v, _ := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0); v != 0 {
		t.Error("the parent has no_new_privs now")
	}
	if v, _ := unix.PrctlRetInt(unix.PR_CAPBSET_READ, unix.CAP_NET_ADMIN, 0, 0, 0); v != 1 {
		t.Error("the parent lost a capability")
	}
}

func TestRootKeepsOnlyWhatItIsGiven(t *testing.T) {
	told := run(t, Rights{Keep: []uintptr{unix.CAP_NET_ADMIN, unix.CAP_CHOWN}})
	want := fmt.Sprintf("%016x", 1<<unix.CAP_NET_ADMIN|1<<unix.CAP_CHOWN)
	for _, k := range []string{"CapPrm", "CapEff", "CapBnd"} {
		if told[k] != want {
			t.Errorf("%s is %s, want %s", k, told[k], want)
		}
	}
	if told["CapAmb"] != none || told["CapInh"] != none {
		t.Errorf("root hands on to its children: ambient %s, inheritable %s", told["CapAmb"], told["CapInh"])
	}
	told = run(t, Rights{UID: 1900000004, GID: 1900000004, Keep: []uintptr{unix.CAP_NET_BIND_SERVICE}})
	want = fmt.Sprintf("%016x", 1<<unix.CAP_NET_BIND_SERVICE)
	for _, k := range []string{"CapPrm", "CapEff", "CapBnd", "CapAmb"} {
		if told[k] != want {
			t.Errorf("not root: %s is %s, want %s", k, told[k], want)
		}
	}
}

func TestInheritedDescriptorsStay(t *testing.T) {
	stray, given := temp(t), temp(t)
	// As if the parent had inherited it: no close-on-exec, and Go knows nothing of it.
	fd, err := unix.FcntlInt(stray.Fd(), unix.F_DUPFD, 40)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	told := run(t, Rights{UID: 1900000001, GID: 1900000001}, given)
	if told["Fd3"] != given.Name() {
		t.Errorf("the given one is %q", told["Fd3"])
	}
	for k, v := range told {
		if v == stray.Name() {
			t.Errorf("%s went through as %s", v, k)
		}
	}
}

func temp(t *testing.T) *os.File {
	t.Helper()
	f, err := os.CreateTemp("/tmp", "portreeve-spawn-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close(); os.Remove(f.Name()) })
	return f
}

func TestChildLivesInTheGivenNamespace(t *testing.T) {
	var ns *os.File
	var want string
	if err := thread.Do(func() (err error) {
		if err = unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return err
		}
		if want, err = os.Readlink("/proc/thread-self/ns/net"); err != nil {
			return err
		}
		ns, err = os.Open("/proc/thread-self/ns/net")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	r := Rights{UID: 1900000002, GID: 1900000002, Netns: ns}
	if told := run(t, r); told["Netns"] != want || told["CapEff"] != none {
		t.Errorf("lives in %s with %s, want %s", told["Netns"], told["CapEff"], want)
	}
	r.Netns = nil
	if told := run(t, r); told["Netns"] == want {
		t.Error("lives there unasked")
	}
	r.Netns = temp(t)
	if err := Start(exec.Command("/bin/true"), r); err == nil {
		t.Error("started though the namespace was none")
	}
}
