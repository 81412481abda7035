package attach

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"portreeve.dev/gateway/config"
	"portreeve.dev/nodes"
)

// Variables writes into dir who is to be trusted, and returns the environment env with the way out and the trust in it. What env
// says of proxies goes; so do exceptions from them, which would lead nowhere.
func Variables(env []string, dir, trust string) ([]string, error) {
	root, bundle, wget := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "bundle.pem"), filepath.Join(dir, "wgetrc")
	all := bytes.Join([][]byte{[]byte(config.SystemRoots()), []byte(trust)}, []byte("\n"))
	if err := errors.Join(os.WriteFile(root, []byte(trust), 0o644), os.WriteFile(bundle, all, 0o644),
		os.WriteFile(wget, nodes.WgetTrust(bundle), 0o644)); err != nil {
		return nil, err
	}
	way := fmt.Sprintf("http://127.0.0.1:%d", Port)
	set := map[string]string{"npm_config_cafile": bundle, "NODE_USE_ENV_PROXY": "1"}
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"} {
		set[name], set[strings.ToLower(name)] = way, way
	}
	set["NO_PROXY"], set["no_proxy"] = "", ""
	for name, value := range nodes.TrustVariables(root, bundle, wget) {
		set[name] = value
	}
	var out []string
	for _, e := range env {
		name, _, _ := strings.Cut(e, "=")
		if _, ours := set[name]; !ours {
			out = append(out, e)
		}
	}
	for name, value := range set {
		out = append(out, name+"="+value)
	}
	return out, nil
}
