package e2e

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
)

// TestProcessesHaveOnlyTheirRights looks from outside, at what the kernel says of each process.
func TestProcessesHaveOnlyTheirRights(t *testing.T) {
	_, p := shared(t)
	uids := map[string]string{}
	for _, role := range []string{"edge", "inward", "control", "ingress"} {
		pid, err := p.PID(role)
		if err != nil {
			t.Fatal(err)
		}
		status := procStatus(t, pid)
		for _, set := range []string{"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"} {
			if strings.Trim(status[set], "0") != "" {
				t.Errorf("%s has %s %s", role, set, status[set])
			}
		}
		if status["NoNewPrivs"] != "1" {
			t.Errorf("%s may gain rights", role)
		}
		if role == "edge" || role == "inward" {
			if status["Seccomp"] != "2" {
				t.Errorf("%s has no list of system calls", role)
			}
		}
		uid := strings.Fields(status["Uid"])[0]
		if uid == "0" || uids[uid] != "" || status["Uid"] != strings.Join([]string{uid, uid, uid, uid}, "\t") {
			t.Errorf("%s has uids %s; %s has %s", role, status["Uid"], uids[uid], uid)
		}
		uids[uid] = role
		if status["Gid"] != status["Uid"] || status["Groups"] != "" {
			t.Errorf("%s has gids %s and groups %s", role, status["Gid"], status["Groups"])
		}
		if core := limitOf(t, pid, "Max core file size"); core != "0 0" {
			t.Errorf("%s may dump %s bytes of core", role, core)
		}
	}
	for _, role := range []string{"edge", "inward", "control", "ingress"} {
		pid, _ := p.PID(role)
		// The kernel gives what a process shows of itself to root once it is not dumpable.
		info, err := os.Stat(fmt.Sprintf("/proc/%d/environ", pid))
		if err != nil {
			t.Fatal(err)
		}
		if owner := info.Sys().(*syscall.Stat_t).Uid; owner != 0 {
			t.Errorf("%s can be looked into by its own uid %d", role, owner)
		}
	}
	node, err := p.PID("node")
	if err != nil {
		t.Fatal(err)
	}
	status := procStatus(t, node)
	var caps uint64
	if _, err := fmt.Sscanf(status["CapEff"], "%x", &caps); err != nil || caps == 0 {
		t.Errorf("the node has no rights (%v): this test looks at the wrong place", err)
	}
	const sysModule, sysRawio, sysBoot, sysTime, perfmon, bpf = 16, 17, 22, 25, 38, 39
	for _, bit := range []uint{sysModule, sysRawio, sysBoot, sysTime, perfmon, bpf} {
		if caps&(1<<bit) != 0 {
			t.Errorf("the node has capability %d", bit)
		}
	}
	if status["CapBnd"] != status["CapEff"] {
		t.Errorf("the node may get %s, it has %s", status["CapBnd"], status["CapEff"])
	}
	inward, _ := p.PID("inward")
	edge, _ := p.PID("edge")
	if a, b := netnsOf(t, inward), netnsOf(t, edge); a == b {
		t.Error("inward lives where the uplink is")
	}
}

// TestUserProcessesHaveNoRights: what the user's programs are, seen from inside and from outside.
func TestUserProcessesHaveNoRights(t *testing.T) {
	_, p := shared(t)
	b := sandbox(t, p)
	inside := b.exec("sh", "-c", "cat /proc/self/status; echo; id")
	status := fieldsOf(inside.Stdout)
	if !strings.Contains(inside.Stdout, "uid=1001(sandbox) gid=1001(sandbox)\n") || status["NoNewPrivs"] != "1" {
		t.Errorf("inside: %+v", inside)
	}
	for _, set := range []string{"CapInh", "CapPrm", "CapEff", "CapAmb"} {
		if status[set] == "" || strings.Trim(status[set], "0") != "" {
			t.Errorf("inside, %s is %q", set, status[set])
		}
	}
	for _, command := range []string{"kill -9 1", "mount -t tmpfs none /tmp", "echo x >/proc/sys/kernel/hostname", "ls /run/portreeve/", "chown 0 /workspace", "ping -c1 -W1 127.0.0.1", "ip link set eth0 down", "cat /etc/shadow"} {
		if r := b.exec("sh", "-c", command); r.Code == 0 {
			t.Errorf("a user process may %s: %+v", command, r)
		}
	}
	if r := b.exec("true"); r.Code != 0 {
		t.Errorf("after the tries: %+v", r)
	}
}

func procStatus(t *testing.T, pid int) map[string]string {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	return fieldsOf(string(data))
}

func fieldsOf(text string) map[string]string {
	fields := map[string]string{}
	for _, line := range strings.Split(text, "\n") {
		key, value, _ := strings.Cut(line, ":")
		fields[key] = strings.TrimSpace(value)
	}
	return fields
}

// limitOf returns soft and hard limit of a process.
func limitOf(t *testing.T, pid int, name string) string {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(string(data), "\n") {
		if rest, ok := strings.CutPrefix(line, name); ok {
			fields := strings.Fields(rest)
			return fields[0] + " " + fields[1]
		}
	}
	t.Fatalf("process %d has no limit %q", pid, name)
	return ""
}

func netnsOf(t *testing.T, pid int) string {
	t.Helper()
	name, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", pid))
	if err != nil {
		t.Fatal(err)
	}
	return name
}
