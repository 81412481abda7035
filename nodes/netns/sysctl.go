package netns

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

// A setting is a file under /proc/sys/net. Which namespace it belongs to is decided by the thread that opens it.
type setting struct {
	file, value string
	optional    bool // its absence is as good as the value: a kernel without IPv6 has it off
}

// edgeSettings hold in the edge netns before the first link is made: links copy "default" when they are made.
var edgeSettings = []setting{
	{file: "ipv4/ip_forward", value: "0"},
	{file: "ipv6/conf/all/disable_ipv6", value: "1", optional: true},
	{file: "ipv6/conf/default/disable_ipv6", value: "1", optional: true},
	// Answer ARP only for the address of the link that was asked, else a sandbox can ask which other pairs exist.
	{file: "ipv4/conf/all/arp_ignore", value: "1"},
	// Refusals go to the sandbox that asked for them, each one: a client that is told at once tries something else. Held back,
	// they would also use up what the whole machine may send, for the neighbours too.
	{file: "ipv4/icmp_ratemask", value: "0"},
}

// sandboxSettings keep IPv6 off eth0 and leave it on lo: many development servers listen on ::1, and runsc copies
// lo's addresses into the sandbox.
var sandboxSettings = []setting{
	{file: "ipv6/conf/default/disable_ipv6", value: "1", optional: true},
}

// apply writes the settings and reads each back: a file system over /proc/sys may swallow a write.
func apply(settings []setting) error {
	for _, s := range settings {
		path := "/proc/sys/net/" + s.file
		if err := os.WriteFile(path, []byte(s.value), 0); err != nil && !(s.optional && errors.Is(err, fs.ErrNotExist)) {
			return fmt.Errorf("setting net/%s: %w", s.file, err)
		}
	}
	return errors.Join(differing(settings)...)
}

// differing returns one error for each setting that does not read as wanted.
func differing(settings []setting) (errs []error) {
	for _, s := range settings {
		b, err := os.ReadFile("/proc/sys/net/" + s.file)
		if s.optional && errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("reading net/%s: %w", s.file, err))
		} else if got := strings.TrimSpace(string(b)); got != s.value {
			errs = append(errs, fmt.Errorf("net/%s is %s, must be %s", s.file, got, s.value))
		}
	}
	return errs
}
