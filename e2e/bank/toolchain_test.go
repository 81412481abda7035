package bank

import (
	"debug/buildinfo"
	"path/filepath"
	"regexp"
	"strconv"
)

// oldest is the first release without the holes of net/http and crypto/tls that rows name.
var oldest = [3]int{1, 26, 9}

// toolchain: every program that reads hostile bytes was built by a release without them.
func toolchain(w *world, done check) {
	for _, name := range []string{"portreeve", "portreeve-edge", "portreeve-node", "portreeve-init"} {
		info, err := buildinfo.ReadFile(filepath.Join(w.p.Bin, name))
		if err != nil {
			done(false, name, err.Error())
			continue
		}
		done(false, name+" is built by a release without it", unless(recent(info.GoVersion), "it is %s", info.GoVersion))
	}
	done(true, "a release as new as that is taken", unless(recent("go1.26.9") && recent("go1.27.3") && !recent("go1.26.8"), "versions compare wrongly"))
}

func recent(version string) bool {
	m := regexp.MustCompile(`^go(\d+)\.(\d+)(?:\.(\d+))?`).FindStringSubmatch(version)
	if m == nil {
		return false
	}
	for i, least := range oldest {
		n, _ := strconv.Atoi(m[i+1])
		if n != least {
			return n > least
		}
	}
	return true
}
