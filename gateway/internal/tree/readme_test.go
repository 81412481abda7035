package tree

import (
	"regexp"
	"strings"
	"testing"
)

var shellBlock = regexp.MustCompile("(?s)```(?:sh|shell|bash|console)\n(.*?)```")

// runBy says for each command of the README which test runs it. "make test" runs all of them, so it names itself.
var runBy = map[string]string{
	"make help":  "e2e TestMakeHelp",
	"make run":   "e2e TestMakeRunReachesItsScreen",
	"make demo":  "e2e TestDemo",
	"make test":  "make test",
	"make prove": ".build/prove TestProofHolds",
	"make dist":  "make vm",
	"make vm":    "make vm",

	"bin/portreeve run -- wget -qO- https://example.com/": "e2e TestReadme",
	"bin/portreeve explain dec_…":                         "e2e TestReadme",
	"bin/portreeve allow example.com --for 1h":            "e2e TestReadme",
	"bin/portreeve decisions":                             "e2e TestReadme",
	"bin/portreeve probe":                                 "e2e TestReadme",

	"echo not-a-real-key | bin/portreeve secret set demo":                            "e2e TestReadme",
	"bin/portreeve grant demo --host postman-echo.com --method GET":                  "e2e TestReadme",
	"bin/portreeve policy set ceiling -f docs/examples/echo.json":                    "e2e TestReadme",
	"bin/portreeve run --template base -- curl -sS https://postman-echo.com/headers": "e2e TestReadme",
	"bin/portreeve run --template base -- env":                                       "e2e TestReadme",

	"bin/portreeve attach -- curl -sS https://example.org/": "e2e TestReadme",

	"bin/portreeve sandbox create --template tiny":                                      "e2e TestReadme",
	"bin/portreeve sandbox exec sbx_… -- sh -c 'echo hello >index.html; httpd -p 8000'": "e2e TestReadme",
	"bin/portreeve tunnel open 8000":                                                    "e2e TestReadme",
	"curl -H 'X-Portreeve-Token: …' http://….tunnel.localhost:8443/":                    "e2e TestReadme",
	"bin/portreeve sandbox pause sbx_…":                                                 "e2e TestReadme",
	"bin/portreeve sandbox list":                                                        "e2e TestReadme",
}

func TestEachCommandOfTheReadmeIsRun(t *testing.T) {
	var readme string
	for _, s := range sources(t, ".md") {
		if s.path == "README.md" {
			readme = s.data
		}
	}
	blocks := shellBlock.FindAllStringSubmatch(readme, -1)
	if len(blocks) == 0 {
		t.Fatal("the README shows no command")
	}
	tests := testNames(t)
	shown := map[string]bool{}
	for _, b := range blocks {
		for _, line := range strings.Split(b[1], "\n") {
			command, _, _ := strings.Cut(line, "#")
			if command = strings.Join(strings.Fields(strings.TrimPrefix(command, "$ ")), " "); command == "" {
				continue
			}
			shown[command] = true
			if runBy[command] == "" {
				t.Errorf("the README shows %q, which no test runs", command)
			}
		}
	}
	for command, by := range runBy {
		if !shown[command] {
			t.Errorf("%q is said to be run by %s, but the README does not show it", command, by)
		}
		if folder, name, ok := strings.Cut(by, " Test"); ok && !tests[folder+" Test"+name] {
			t.Errorf("%q is said to be run by %s, which does not exist", command, by)
		}
	}
}

var testFunc = regexp.MustCompile(`(?m)^func (Test[A-Za-z0-9_]+)\(t \*testing\.T\)`)

// testNames returns "folder TestName" for each test there is.
func testNames(t *testing.T) map[string]bool {
	names := map[string]bool{}
	for _, s := range sources(t, "_test.go") {
		folder := s.path[:strings.LastIndex(s.path, "/")]
		for _, m := range testFunc.FindAllStringSubmatch(s.data, -1) {
			names[folder+" "+m[1]] = true
		}
	}
	return names
}
