package lab

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sort"
	"strings"
)

// A World is what of the products' making can be left on a machine, one line each: mounts, network namespaces,
// cgroups, links, processes, tables of rules.
type World []string

// instanceOf is what a product with its state in that folder has in all its names on the machine.
func instanceOf(state string) string {
	sum := sha256.Sum256([]byte(filepath.Clean(state)))
	return hex.EncodeToString(sum[:3])
}

// marks are what tells things of this lab's products from those of others on the same machine.
func (l *Lab) marks() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	marks := []string{l.Dir}
	for _, state := range l.states {
		marks = append(marks, instanceOf(state))
	}
	return marks
}

// Look lists what there is now: on the machine what bears a name of this lab's products, in the lab's gateway namespace
// everything.
func (l *Lab) Look() (World, error) {
	var w World
	marks := l.marks()
	ours := func(lines []string) []string {
		return slices.DeleteFunc(lines, func(line string) bool {
			return !slices.ContainsFunc(marks, func(mark string) bool { return strings.Contains(line, mark) })
		})
	}
	add := func(kind string, lines []string) {
		for _, line := range lines {
			w = append(w, kind+" "+line)
		}
	}
	mounts, err := mounts("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	add("mount", ours(mounts))
	names, err := os.ReadDir("/run/netns")
	if err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	for _, name := range names {
		add("netns", ours([]string{name.Name()}))
	}
	cgroups, err := cgroups()
	if err != nil {
		return nil, err
	}
	add("cgroup", ours(cgroups))
	for _, p := range processes() {
		if len(ours([]string{strings.Join(p.args, " ")})) > 0 {
			add("process", []string{fmt.Sprintf("%d %s", p.pid, strings.Join(p.args[:min(len(p.args), 3)], " "))})
		}
	}
	tables, err := output("nft", "list", "tables")
	if err != nil {
		return nil, err
	}
	add("table", ours(tables))
	inside := []string{"netns", "exec", l.Gateway.Name}
	if tables, err = output("ip", append(inside, "nft", "list", "ruleset")...); err != nil {
		return nil, err
	}
	add("gateway rule", tables)
	links, err := output("ip", append(inside, "ip", "-o", "link")...)
	if err != nil {
		return nil, err
	}
	for _, link := range links {
		if fields := strings.Fields(link); len(fields) > 1 {
			add("gateway link", []string{fields[1]})
		}
	}
	routes, err := output("ip", append(inside, "ip", "-o", "rule")...)
	if err != nil {
		return nil, err
	}
	add("gateway routing rule", routes)
	sort.Strings(w)
	return w, nil
}

// Left says what is in after and was not in before, and what is gone; nil when they are the same.
func Left(before, after World) error {
	var lines []string
	for _, line := range after {
		if !slices.Contains(before, line) {
			lines = append(lines, "left: "+line)
		}
	}
	for _, line := range before {
		if !slices.Contains(after, line) {
			lines = append(lines, "gone: "+line)
		}
	}
	if lines == nil {
		return nil
	}
	return fmt.Errorf("the machine is not as before:\n%s", strings.Join(lines, "\n"))
}

// mounts returns mount point and source of each mount.
func mounts(file string) ([]string, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var found []string
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		left, right, _ := strings.Cut(lines.Text(), " - ")
		fields, source := strings.Fields(left), strings.Fields(right)
		if len(fields) > 4 && len(source) > 1 {
			found = append(found, fields[4]+" from "+source[0]+" "+source[1]+" "+fields[3])
		}
	}
	return found, lines.Err()
}

// cgroups lists the folders of all hierarchies, v1 and v2 alike.
func cgroups() ([]string, error) {
	var found []string
	err := filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			if os.IsNotExist(err) {
				return nil // it has ended meanwhile
			}
			return err
		}
		if d.IsDir() {
			found = append(found, path)
		}
		return nil
	})
	return found, err
}

func output(name string, args ...string) ([]string, error) {
	out, err := exec.Command(name, args...).Output()
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
	}
	return slices.DeleteFunc(strings.Split(string(out), "\n"), func(line string) bool { return line == "" }), nil
}
