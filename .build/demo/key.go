package main

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Made up, both: what is stored, and what code in the sandbox brings along.
const (
	storedKey = "demo-key-7f3a91c2d0"
	strayKey  = "stray-key-55e0b1"
)

// keep stores the key, says where it may go, and makes the sandbox that the next steps use.
func (v *visit) keep() (string, error) {
	if r := v.product.CLIWith(storedKey+"\n", "secret", "set", "demo"); r.Code != 0 {
		return r.String(), errors.New("it was not kept")
	}
	if v.broken != "grant" {
		if r := v.product.CLI("grant", "demo", "--host", "api.test", "--method", "GET"); r.Code != 0 {
			return r.String(), errors.New("it was not granted")
		}
	}
	methods := []string{"GET"}
	if v.broken == "method" {
		methods = append(methods, "POST")
	}
	rule := map[string]any{"id": "api", "action": "allow", "hosts": []string{"api.test"}, "tls": "inspect", "methods": methods}
	answer, err := v.product.API("PUT", "/settings/egress?wait=applied", map[string]any{"rules": []any{rule}})
	if err != nil || answer.Status != 200 {
		return answer.String(), errors.Join(err, errors.New("the policy was not taken"))
	}
	created := v.product.CLI("sandbox", "create", "--template", "tiny")
	if v.box = strings.TrimSpace(created.Stdout); created.Code != 0 || v.box == "" {
		return created.String(), errors.New("no sandbox")
	}
	return "GET requests to https://api.test/ get it, in the header Authorization", nil
}

// carry lets the sandbox call with a stray key of its own, and asks the upstream what arrived.
func (v *visit) carry() (string, error) {
	if err := v.bring("e2e/hostile"); err != nil {
		return "", err
	}
	headers := [][2]string{{"Authorization", "Bearer " + strayKey}, {"X-Api-Key", strayKey}}
	script, err := json.Marshal(map[string]any{"to": "api.test:443", "requests": []any{
		map[string]any{"method": "GET", "target": "/v1/models", "host": "api.test", "header": headers},
	}})
	if err != nil {
		return "", err
	}
	r := v.product.CLI("sandbox", "exec", v.box, "--", "/workspace/hostile", "opened", string(script))
	if r.Code != 0 {
		return r.String(), errors.New("the call did not work")
	}
	got := v.lab.Web.Requests("api.test")
	if len(got) != 1 {
		return r.Stdout, fmt.Errorf("api.test received %d calls", len(got))
	}
	text := fmt.Sprint(got[0])
	switch {
	case got[0].Header.Get("Authorization") != "Bearer "+storedKey:
		return text, errors.New("the stored key did not arrive")
	case strings.Contains(text, strayKey):
		return text, errors.New("the sandbox's own key arrived")
	}
	return "api.test received \"Authorization: " + got[0].Header.Get("Authorization") + "\", and of the sandbox's own key nothing", nil
}

// search looks for the key where a sandbox could: in all its files and in its processes' environments.
func (v *visit) search() (string, error) {
	const look = "cat /proc/[0-9]*/environ; grep -rs demo-key /workspace /tmp /etc /run /var /root /home /.portreeve; echo searched"
	r := v.product.CLI("sandbox", "exec", v.box, "--", "sh", "-c", look)
	if !strings.Contains(r.Stdout, "searched") || strings.Contains(r.Stdout+r.Stderr, storedKey) {
		return r.String(), errors.New("it is there, or could not be looked for")
	}
	return "no file and no environment holds it", nil
}

// bring builds a program of ours and carries it into the sandbox.
func (v *visit) bring(folder string) error {
	name := filepath.Base(folder)
	file := filepath.Join(v.lab.Dir, name)
	build := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", file, "./"+folder)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("building %s: %w\n%s", name, err, out)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	body := map[string]any{"files": []any{map[string]any{"path": "/workspace/" + name, "content": base64.StdEncoding.EncodeToString(data)}}}
	answer, err := v.product.API("POST", "/sandbox/"+v.box+"/files", body)
	if err != nil || answer.Status != 200 {
		return errors.Join(err, fmt.Errorf("carrying %s into the sandbox: %v", name, answer))
	}
	if r := v.product.CLI("sandbox", "exec", v.box, "--", "chmod", "755", "/workspace/"+name); r.Code != 0 {
		return errors.New(r.String())
	}
	return nil
}
