package api_test

import (
	"bufio"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"portreeve.dev/gateway/api/apitest"
)

func TestExecuteBuffered(t *testing.T) {
	w := apitest.New(t)
	c := w.Org("one")
	at := "/sandbox/" + c.Sandbox() + "/execute"
	a := c.Do("POST", at, object{"command": "echo out; echo err >&2; echo $A; cat; exit 3", "env": object{"A": "b"}, "stdin": "in"}).Want(200)
	if a.At("exit_code") != 3.0 || a.String("stdout") != "out\nb\nin" || a.String("stderr") != "err\n" {
		t.Errorf("%s", a.Body)
	}
	if a := c.Do("POST", at, object{"command": []string{"printf", "%s", "a b"}}).Want(200); a.String("stdout") != "a b" {
		t.Errorf("%s", a.Body)
	}
	if a := c.Do("POST", at, object{"command": "pwd", "working_dir": "/tmp"}).Want(200); !strings.HasSuffix(a.String("stdout"), "/tmp\n") {
		t.Errorf("%s", a.Body)
	}
	if a := c.Do("POST", at, object{"command": `printf '\377ok'`}).Want(200); a.String("stdout") != "\uFFFDok" {
		t.Errorf("%s", a.Body)
	}
	big := c.Do("POST", at, object{"command": "head -c 1048576 /dev/zero | tr '\\0' a; head -c 1048577 /dev/zero | tr '\\0' b >&2"}).Want(200)
	if len(big.String("stdout")) != 1<<20 || len(big.String("stderr")) != 1<<20 || big.At("stdout_truncated") != false || big.At("stderr_truncated") != true {
		t.Errorf("%d and %d bytes, truncated %v and %v", len(big.String("stdout")), len(big.String("stderr")), big.At("stdout_truncated"), big.At("stderr_truncated"))
	}
	begun := time.Now()
	if a := c.Do("POST", at, object{"command": "echo early; sleep 60", "timeout": 100}).Want(200); a.At("exit_code") != 124.0 || a.At("timed_out") != true || a.String("stdout") != "early\n" || time.Since(begun) > 30*time.Second {
		t.Errorf("%s", a.Body)
	}
}

func TestExecuteRefusals(t *testing.T) {
	w := apitest.New(t)
	c := w.Org("one")
	at := "/sandbox/" + c.Sandbox() + "/execute"
	for body, location := range map[string]string{
		`{}`: "body.command", `{"command":""}`: "body.command", `{"command":[]}`: "body.command", `{"command":[""]}`: "body.command", `{"command":5}`: "body.command", `{"command":["a",1]}`: "body.command",
		`{"command":"a\u0000b"}`: "body.command", `{"command":"true","timeout":-1}`: "body.timeout", `{"command":"true","timeout":"1"}`: "body.timeout", `{"command":"true","cwdd":"/"}`: "body.cwdd",
		`{"command":"true","working_dir":"relative"}`: "body.working_dir", `{"command":"true","env":{"":"x"}}`: "body.env", `{"command":"true","stream":1}`: "body.stream",
	} {
		c.Do("POST", at, body).Refused(422, "invalid_request", location)
	}
	c.Do("POST", at, `{"command":`).Refused(400, "bad_request", "body")
	c.Do("POST", at, `{"command":"true"} {}`).Refused(400, "bad_request", "body")
	c.Do("POST", at, object{"command": []string{"no-such-command"}}).Refused(422, "command_not_found", "body.command")
	c.Do("POST", at, object{"command": "true", "cwd": "/workspace/nowhere"}).Refused(422, "cwd_missing", "body.working_dir")
	if a := c.Do("POST", at, object{"command": "no-such-command"}).Want(200); a.At("exit_code") != 127.0 {
		t.Errorf("a shell line with a command that isn't: %s", a.Body)
	}
	c.Do("POST", "/sandbox/sbx_none/execute", object{"command": "true"}).Refused(404, "sandbox_not_found")
	log := c.Do("GET", "/audit?action=command.execute", nil)
	if strings.Contains(string(log.Body), "no-such-command") || log.At("total").(float64) < 3 {
		t.Errorf("%s", log.Body)
	}
}

// events reads a stream of server-sent events until it ends.
func events(t *testing.T, w *apitest.World, c *apitest.Client, method, path, body string, each func(id string, data map[string]any) bool) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, w.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for name, values := range c.Header {
		req.Header[name] = values
	}
	req.Header.Set("Authorization", "ApiKey "+c.Key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%d %s", resp.StatusCode, resp.Header.Get("Content-Type"))
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 4<<20)
	id := ""
	for lines.Scan() {
		switch line := lines.Text(); {
		case strings.HasPrefix(line, "id: "):
			id = line[4:]
		case strings.HasPrefix(line, ":"):
			if !each(line, nil) {
				return
			}
		case strings.HasPrefix(line, "data: "):
			var data map[string]any
			if err := json.Unmarshal([]byte(line[6:]), &data); err != nil {
				t.Fatal(err)
			}
			if !each(id, data) {
				return
			}
		}
	}
}

func TestExecuteStream(t *testing.T) {
	w := apitest.New(t)
	c := w.Org("one")
	at := "/sandbox/" + c.Sandbox() + "/execute"
	var stdout, stderr string
	var types []string
	run := func(command string, timeout int) {
		t.Helper()
		stdout, stderr, types = "", "", nil
		body, _ := json.Marshal(object{"command": command, "stream": true, "timeout": timeout})
		events(t, w, c, "POST", at, string(body), func(_ string, data map[string]any) bool {
			switch data["type"] {
			case "stdout":
				stdout += data["data"].(string)
			case "stderr":
				stderr += data["data"].(string)
			case "exit":
				types = append(types, "exit", strings.TrimSuffix(jsonOf(t, data["code"]), ".0"))
			default:
				types = append(types, data["type"].(string))
			}
			return true
		})
	}
	// A character of three bytes that arrives in two pieces stays whole.
	run(`printf 'a\342\202'; echo err >&2; sleep 0.1; printf '\254b'; exit 5`, 0)
	if stdout != "a€b" || stderr != "err\n" || strings.Join(types, " ") != "exit 5 done" {
		t.Errorf("stdout %q, stderr %q, then %v", stdout, stderr, types)
	}
	run(`printf '\342'; exit 0`, 0)
	if stdout != "\uFFFD" {
		t.Errorf("half a character: %q", stdout)
	}
	run(`echo early; sleep 60`, 100)
	if stdout != "early\n" || strings.Join(types, " ") != "exit 124 done" {
		t.Errorf("stdout %q, then %v", stdout, types)
	}
	c.Do("POST", at, object{"command": []string{"no-such-command"}, "stream": true}).Refused(422, "command_not_found", "body.command")
}

func jsonOf(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestShell(t *testing.T) {
	w := apitest.New(t)
	c := w.Org("one")
	url := "ws" + strings.TrimPrefix(w.URL, "http") + "/sandbox/" + c.Sandbox() + "/shell?rows=33&cols=99&command=" + "stty+size%3B+read+line%3B+stty+size%3B+echo+got+%24line%3B+exit+7"
	header := http.Header{"Authorization": {"ApiKey " + c.Key}}
	conn, _, err := websocket.Dial(t.Context(), url, &websocket.DialOptions{HTTPHeader: header})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.CloseNow()
	var out strings.Builder
	var end string
	for end == "" {
		kind, data, err := conn.Read(t.Context())
		if err != nil {
			t.Fatalf("%v after %q", err, out.String())
		}
		if kind == websocket.MessageText {
			end = string(data)
			break
		}
		before := out.String()
		out.Write(data)
		if strings.Contains(out.String(), "33 99") && !strings.Contains(before, "33 99") {
			for _, m := range []struct {
				kind websocket.MessageType
				text string
			}{{websocket.MessageText, `{"type":"resize","rows":20,"cols":50}`}, {websocket.MessageBinary, "hello\r"}} {
				if err := conn.Write(t.Context(), m.kind, []byte(m.text)); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if end != `{"type":"exit","code":7}` || !strings.Contains(out.String(), "20 50") || !strings.Contains(out.String(), "got hello") {
		t.Errorf("%q, then %s", out.String(), end)
	}
	if _, _, err := conn.Read(t.Context()); websocket.CloseStatus(err) != websocket.StatusNormalClosure {
		t.Errorf("closed with %v", err)
	}
	// A page of another origin is refused, even with a key.
	header.Set("Origin", "https://evil.test")
	if conn, resp, err := websocket.Dial(t.Context(), url, &websocket.DialOptions{HTTPHeader: header}); err == nil {
		conn.CloseNow()
		t.Error("another origin got a shell")
	} else if resp.StatusCode != 403 {
		t.Errorf("another origin: %d", resp.StatusCode)
	}
	c.Do("GET", "/sandbox/"+c.Sandbox()+"/shell?rows=0", nil).Refused(422, "invalid_request", "query.rows")
}
