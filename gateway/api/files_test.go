package api_test

import (
	"encoding/base64"
	"errors"
	"strings"
	"testing"

	"portreeve.dev/gateway/api"
	"portreeve.dev/gateway/api/apitest"
	"portreeve.dev/nodes/guest/frame"
)

func TestFiles(t *testing.T) {
	w := apitest.New(t)
	c := w.Org("one")
	at := "/sandbox/" + c.Sandbox() + "/files"
	b64 := base64.StdEncoding.EncodeToString([]byte("héllo\x00"))
	c.Do("POST", at, object{"files": []object{{"path": "/workspace/a.txt", "content": b64}, {"path": "dir/b", "content": b64, "mode": "0755"}}}).Want(200)
	c.Do("POST", at+"/write", object{"path": "/tmp/c", "content": "text", "encoding": "utf-8"}).Want(200)
	for _, a := range []*apitest.Answer{c.Do("GET", at+"?path=/workspace/a.txt", nil), c.Do("GET", at+"?path=a.txt", nil), c.Do("POST", at+"/read", object{"path": "a.txt"})} {
		if a.Want(200).String("content") != b64 || a.String("path") != "/workspace/a.txt" || a.At("size") != 7.0 {
			t.Errorf("%s", a.Body)
		}
	}
	list := c.Do("GET", at+"/list?path=/workspace", nil).Want(200)
	if list.String("entries.0.name") != "a.txt" || list.String("entries.0.type") != "file" || list.String("entries.1.name") != "dir" || list.String("entries.1.type") != "directory" {
		t.Errorf("%s", list.Body)
	}
	if a := c.Do("GET", at+"/list?path=dir", nil).Want(200); a.String("entries.0.mode") != "0755" {
		t.Errorf("%s", a.Body)
	}
	c.Do("DELETE", at+"?path=a.txt", nil).Want(200)
	c.Do("GET", at+"?path=a.txt", nil).Refused(404, "file_not_found")
	c.Do("DELETE", at+"?path=dir", nil).Refused(409, "not_regular")
	c.Do("DELETE", at+"?path=dir&recursive=true", nil).Want(200)
	c.Do("GET", at+"?path=/workspace", nil).Refused(409, "not_regular")

	for body, location := range map[string]string{
		`{"files":[]}`: "body.files", `{"files":[{"path":"a","content":"***"}]}`: "body.files[0].content", `{"files":[{"path":"a","content":"","mode":"9"}]}`: "body.files[0].mode",
		`{"files":[{"path":"a","content":"","encoding":"rot13"}]}`: "body.files[0].encoding", `{"files":[{"content":""}]}`: "body.files[0].path", `{"files":[{"path":"a","content":"","mode":"4755"}]}`: "body.files[0].mode",
		`{"file":[]}`: "body.file", `{"files":{}}`: "body.files",
	} {
		c.Do("POST", at, body).Refused(422, "invalid_request", location)
	}
	// The second is wrong: the first is not written either.
	c.Do("POST", at, object{"files": []object{{"path": "first", "content": ""}, {"path": "../second", "content": ""}}}).Refused(422, "path_outside", "body.files[1].path")
	c.Do("GET", at+"?path=first", nil).Refused(404, "file_not_found")
	for _, path := range []string{"/workspace", "/tmp"} {
		c.Do("DELETE", at+"?recursive=true&path="+path, nil).Refused(422, "invalid_request", "query.path")
	}
	c.Do("GET", at+"?path=a&made_up=1", nil).Refused(422, "invalid_request", "query.made_up")
}

func TestPathsStayInTheSandbox(t *testing.T) {
	w := apitest.New(t)
	c := w.Org("one")
	at := "/sandbox/" + c.Sandbox() + "/files"
	for _, path := range []string{"../x", "a/../../x", "/workspace/../etc/passwd", "/workspace/..", "/etc/passwd", "/", "/proc/1/environ", "/workspacex/a", "/tmpx", "..", "/tmp/./../etc", "//etc/passwd"} {
		q := strings.NewReplacer("/", "%2F", ".", "%2E").Replace(path)
		c.Do("GET", at+"?path="+q, nil).Refused(422, "path_outside", "query.path")
		c.Do("GET", at+"/download?path="+q, nil).Refused(422, "path_outside", "query.path")
		c.Do("GET", at+"/list?path="+q, nil).Refused(422, "path_outside", "query.path")
		c.Do("DELETE", at+"?path="+q, nil).Refused(422, "path_outside", "query.path")
		c.Do("POST", at+"/read", object{"path": path}).Refused(422, "path_outside", "body.path")
		c.Do("POST", at+"/write", object{"path": path, "content": ""}).Refused(422, "path_outside", "body.path")
		c.Do("POST", at, object{"files": []object{{"path": path, "content": ""}}}).Refused(422, "path_outside", "body.files[0].path")
	}
	for _, path := range []string{"", "a\x00b", strings.Repeat("a", 5000)} {
		c.Do("POST", at+"/write", object{"path": path, "content": ""}).Refused(422, "invalid_request", "body.path")
	}
	for _, path := range []string{"..a", "a/..b/c", "/tmp//x", "/workspace/./y", "a..b"} {
		c.Do("POST", at+"/write", object{"path": path, "content": ""}).Want(200)
	}
}

func TestDownloadIsAnAttachment(t *testing.T) {
	w := apitest.New(t)
	c := w.Org("one")
	at := "/sandbox/" + c.Sandbox() + "/files"
	page := "<script>alert(1)</script>"
	c.Do("POST", at+"/write", object{"path": `pa"ge ü.html`, "content": page, "encoding": "utf-8"}).Want(200)
	a := c.Do("GET", at+"/download?path="+"pa%22ge%20%C3%BC.html", nil).Want(200)
	if string(a.Body) != page {
		t.Errorf("%q", a.Body)
	}
	for name, want := range map[string]string{
		"Content-Type": "application/octet-stream", "Content-Disposition": "attachment; filename*=UTF-8''pa%22ge%20%C3%BC.html", "X-Content-Type-Options": "nosniff",
		"Content-Security-Policy": "sandbox; default-src 'none'; frame-ancestors 'none'", "Content-Length": "25",
	} {
		if got := a.Header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

func TestGuestRefusals(t *testing.T) {
	w := apitest.New(t)
	c := w.Org("one")
	at := "/sandbox/" + c.Sandbox() + "/files"
	for code, status := range map[frame.Code]int{
		frame.CodeNoSpace: 409, frame.CodePermission: 409, frame.CodeBusy: 429, frame.CodeTimeout: 504, frame.CodeTooLarge: 413, frame.CodePathOutside: 422, frame.CodeProcessLimit: 409,
		frame.CodeUnavailable: 503,
	} {
		w.Guest.Break(&api.GuestError{Code: code})
		c.Do("POST", at+"/write", object{"path": "a", "content": ""}).Refused(status, string(code))
	}
	w.Guest.Break(&api.GuestError{Code: frame.CodeHostile})
	c.Do("POST", at+"/write", object{"path": "a", "content": ""}).Refused(502, "guest_failed")
	w.Guest.Break(errors.New("some cause"))
	if a := c.Do("POST", at+"/write", object{"path": "a", "content": ""}).Refused(503, "sandbox_unavailable"); strings.Contains(string(a.Body), "cause") {
		t.Errorf("%s", a.Body)
	}
	w.Guest.Break(nil)
	c.Do("POST", at+"/write", object{"path": "a", "content": ""}).Want(200)
}
