package api

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"path"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"portreeve.dev/gateway/audit"
	"portreeve.dev/nodes/guest/frame"
	"portreeve.dev/sso"
)

const (
	maxFileJSON  = 16 << 20 // of a file read into JSON; download has no such limit
	maxFileCount = 200      // of one request
)

type filesIn struct {
	Files []fileIn `json:"files"`
}

type fileIn struct {
	Path     string `json:"path"`
	Content  string `json:"content" doc:"base64"`
	Encoding string `json:"encoding,omitempty" doc:"base64, the default, or utf-8."`
	Mode     string `json:"mode,omitempty" doc:"Octal permission bits, like 0755."`
}

type filesOut struct {
	Success bool       `json:"success"`
	Files   []fileSize `json:"files"`
}

type fileSize struct {
	Path string `json:"path"`
	Size int64  `json:"size"`
}

type fileOut struct {
	Path     string `json:"path"`
	Content  string `json:"content" doc:"base64"`
	Encoding string `json:"encoding"`
	Size     int64  `json:"size"`
}

type pathIn struct {
	Path string `json:"path"`
}

type listOut struct {
	Path    string      `json:"path"`
	Entries []listEntry `json:"entries"`
}

type listEntry struct {
	Name     string    `json:"name"`
	Type     string    `json:"type" doc:"file, directory, symlink or other."`
	Size     int64     `json:"size"`
	Mode     string    `json:"mode"`
	Modified time.Time `json:"modified_at"`
}

type fileDeleted struct {
	Success bool `json:"success"`
}

func (s *Server) fileRoutes() {
	op := func(id, method, route, summary string, parameters ...*huma.Param) huma.Operation {
		return huma.Operation{OperationID: id, Method: method, Path: "/sandbox/{id}/files" + route, Summary: summary, Tags: []string{"files"},
			Parameters: append([]*huma.Param{{Name: "id", In: "path", Required: true, Schema: &huma.Schema{Type: "string"}}}, parameters...)}
	}
	at := &huma.Param{Name: "path", In: "query", Required: true, Schema: &huma.Schema{Type: "string"}, Description: "In /workspace or /tmp; a relative one begins in /workspace."}
	recursive := &huma.Param{Name: "recursive", In: "query", Schema: &huma.Schema{Type: "boolean"}}
	s.plain(sso.ScopeWrite, op("write-files", http.MethodPost, "", "Write files"), shape[filesIn](s, "FilesIn"), shape[filesOut](s, "FilesOut"), s.writeFiles)
	s.plain(sso.ScopeWrite, op("write-file", http.MethodPost, "/write", "Write a file"), shape[fileIn](s, "FileIn"), shape[filesOut](s, "FilesOut"), s.writeFile)
	s.plain(sso.ScopeRead, op("read-file", http.MethodGet, "", "Read a file", at), nil, shape[fileOut](s, "FileOut"), s.readFile)
	s.plain(sso.ScopeRead, op("read-file-body", http.MethodPost, "/read", "Read a file"), shape[pathIn](s, "PathIn"), shape[fileOut](s, "FileOut"), s.readFile)
	s.plain(sso.ScopeRead, op("download-file", http.MethodGet, "/download", "Download a file as it is", at), nil, nil, s.downloadFile)
	s.plain(sso.ScopeRead, op("list-files", http.MethodGet, "/list", "List a folder", at), nil, shape[listOut](s, "ListOut"), s.listFiles)
	s.plain(sso.ScopeWrite, op("delete-file", http.MethodDelete, "", "Delete a file or a folder", at, recursive), nil, shape[fileDeleted](s, "FileDeleted"), s.deleteFile)
}

// pathOf takes the path from the query, or from the body of a POST.
func pathOf(r *http.Request, known ...string) (string, error) {
	if r.Method == http.MethodPost {
		var in pathIn
		if err := decode(r, &in); err != nil {
			return "", err
		}
		return insidePath("body.path", in.Path)
	}
	for name := range r.URL.Query() {
		if name != "path" && (len(known) == 0 || name != known[0]) {
			return "", invalid("query."+name, "unknown query parameter")
		}
	}
	return insidePath("query.path", r.URL.Query().Get("path"))
}

func (s *Server) writeFiles(w http.ResponseWriter, r *http.Request, c *caller) error {
	var in filesIn
	if err := decode(r, &in); err != nil {
		return err
	}
	if len(in.Files) == 0 || len(in.Files) > maxFileCount {
		return invalid("body.files", fmt.Sprintf("must hold 1 to %d files", maxFileCount))
	}
	return s.write(w, r, c, in.Files, func(i int) string { return fmt.Sprintf("body.files[%d]", i) })
}

func (s *Server) writeFile(w http.ResponseWriter, r *http.Request, c *caller) error {
	var in fileIn
	if err := decode(r, &in); err != nil {
		return err
	}
	return s.write(w, r, c, []fileIn{in}, func(int) string { return "body" })
}

// write checks every file before it writes the first.
func (s *Server) write(w http.ResponseWriter, r *http.Request, c *caller, files []fileIn, location func(int) string) error {
	ctx := r.Context()
	b, err := s.running(ctx, c, r.PathValue("id"))
	if err != nil {
		return err
	}
	messages, contents := make([]frame.WriteMessage, len(files)), make([][]byte, len(files))
	out := filesOut{Success: true, Files: []fileSize{}}
	for i, f := range files {
		if messages[i].Path, err = insidePath(location(i)+".path", f.Path); err != nil {
			return err
		}
		messages[i].Mkdirs = true
		if messages[i].Mode, err = parseMode(location(i)+".mode", f.Mode); err != nil {
			return err
		}
		switch f.Encoding {
		case "", "base64":
			if contents[i], err = base64.StdEncoding.DecodeString(f.Content); err != nil {
				return invalid(location(i)+".content", "is not base64")
			}
		case "utf-8":
			contents[i] = []byte(f.Content)
		default:
			return invalid(location(i)+".encoding", "must be base64 or utf-8")
		}
		out.Files = append(out.Files, fileSize{messages[i].Path, int64(len(contents[i]))})
	}
	for i, m := range messages {
		if err := s.note(ctx, c, audit.FileWrite, b.ID, map[string]string{"path": m.Path}); err != nil {
			return err
		}
		if err := s.Guest.Write(ctx, b.ID, m, bytes.NewReader(contents[i])); err != nil {
			return s.guestRefused(ctx, c, b, err)
		}
	}
	return answerJSON(w, out)
}

func parseMode(location, mode string) (uint32, error) {
	if mode == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(mode, 8, 32)
	if err != nil || n == 0 || n > 0o777 {
		return 0, invalid(location, "must be octal permission bits, like 0644")
	}
	return uint32(n), nil
}

// open finds the sandbox and opens a file in it.
func (s *Server) open(r *http.Request, c *caller, most int64) (io.ReadCloser, frame.InfoMessage, string, error) {
	b, err := s.running(r.Context(), c, r.PathValue("id"))
	if err != nil {
		return nil, frame.InfoMessage{}, "", err
	}
	at, err := pathOf(r)
	if err != nil {
		return nil, frame.InfoMessage{}, "", err
	}
	if err := s.note(r.Context(), c, audit.FileRead, b.ID, map[string]string{"path": at}); err != nil {
		return nil, frame.InfoMessage{}, "", err
	}
	content, info, err := s.Guest.Read(r.Context(), b.ID, at, most)
	if err != nil {
		return nil, info, at, s.guestRefused(r.Context(), c, b, err)
	}
	return content, info, at, nil
}

func (s *Server) readFile(w http.ResponseWriter, r *http.Request, c *caller) error {
	content, _, at, err := s.open(r, c, maxFileJSON)
	if err != nil {
		return err
	}
	defer content.Close()
	data, err := io.ReadAll(io.LimitReader(content, maxFileJSON+1))
	if err != nil {
		return &GuestError{Code: frame.CodeUnavailable}
	}
	if len(data) > maxFileJSON {
		return &GuestError{Code: frame.CodeTooLarge}
	}
	return answerJSON(w, fileOut{Path: at, Content: base64.StdEncoding.EncodeToString(data), Encoding: "base64", Size: int64(len(data))})
}

// downloadFile sends bytes of a sandbox in a way that no browser takes for ours.
func (s *Server) downloadFile(w http.ResponseWriter, r *http.Request, c *caller) error {
	content, info, at, err := s.open(r, c, frame.MaxFile)
	if err != nil {
		return err
	}
	defer content.Close()
	h := w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Content-Disposition", "attachment; filename*=UTF-8''"+escapeName(path.Base(at)))
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "sandbox; default-src 'none'; frame-ancestors 'none'")
	h.Set("Content-Length", strconv.FormatInt(info.Size, 10))
	// A file that shrank meanwhile ends the connection short of its length, which the client notices.
	if _, err := io.CopyN(w, content, info.Size); err != nil {
		panic(http.ErrAbortHandler)
	}
	return nil
}

// escapeName writes a name as RFC 8187 wants it.
func escapeName(name string) string {
	const plain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~"
	var b bytes.Buffer
	for _, c := range []byte(name) {
		if bytes.IndexByte([]byte(plain), c) >= 0 {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

func (s *Server) listFiles(w http.ResponseWriter, r *http.Request, c *caller) error {
	b, err := s.running(r.Context(), c, r.PathValue("id"))
	if err != nil {
		return err
	}
	at, err := pathOf(r)
	if err != nil {
		return err
	}
	entries, err := s.Guest.List(r.Context(), b.ID, at)
	if err != nil {
		return s.guestRefused(r.Context(), c, b, err)
	}
	out := listOut{Path: at, Entries: []listEntry{}}
	for _, e := range entries {
		out.Entries = append(out.Entries, listEntry{e.Name, string(e.Kind), e.Size, fmt.Sprintf("%04o", e.Mode), time.UnixMilli(e.Modified).UTC()})
	}
	return answerJSON(w, out)
}

func (s *Server) deleteFile(w http.ResponseWriter, r *http.Request, c *caller) error {
	b, err := s.running(r.Context(), c, r.PathValue("id"))
	if err != nil {
		return err
	}
	at, err := pathOf(r, "recursive")
	if err != nil {
		return err
	}
	if at == "/workspace" || at == "/tmp" {
		return invalid("query.path", "this folder itself can't be deleted")
	}
	recursive := r.URL.Query().Get("recursive")
	if recursive != "" && recursive != "true" && recursive != "false" {
		return invalid("query.recursive", "must be true or false")
	}
	if err := s.note(r.Context(), c, audit.FileDelete, b.ID, map[string]string{"path": at}); err != nil {
		return err
	}
	if err := s.Guest.Delete(r.Context(), b.ID, frame.DeleteMessage{Path: at, Recursive: recursive == "true"}); err != nil {
		return s.guestRefused(r.Context(), c, b, err)
	}
	return answerJSON(w, fileDeleted{true})
}
