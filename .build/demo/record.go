package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// post lets the sandbox do what the rule for api.test does not name.
func (v *visit) post() (string, error) {
	script, err := json.Marshal(map[string]any{"to": "api.test:443", "requests": []any{
		map[string]any{"method": "POST", "target": "/v1/models", "host": "api.test", "body": "{}"},
	}})
	if err != nil {
		return "", err
	}
	r := v.product.CLI("sandbox", "exec", v.box, "--", "/workspace/hostile", "opened", string(script))
	var replies []struct {
		Status int    `json:"status"`
		Body   string `json:"body"`
	}
	if err := json.Unmarshal([]byte(strings.TrimPrefix(r.Stdout, "ok ")), &replies); err != nil || len(replies) != 1 {
		return r.String(), errors.New("the call had no answer")
	}
	if got := v.lab.Web.Requests("api.test"); replies[0].Status != 403 || len(got) != 1 {
		return replies[0].Body, fmt.Errorf("it was answered %d, and api.test received %d calls", replies[0].Status, len(got))
	}
	decision := decisionID.FindString(replies[0].Body)
	why := v.product.CLI("explain", decision)
	if why.Code != 0 || !strings.Contains(why.Stdout, "POST") {
		return why.String(), errors.New("the decision is not explained")
	}
	return why.Stdout, nil
}

// audited is what the tour has done so far, as the log calls it.
var audited = []string{"egress.update", "secret.create", "secret.grant", "sandbox.create", "tunnel.create", "sandbox.pause", "sandbox.resume"}

// audit looks up who did what.
func (v *visit) audit() (string, error) {
	r := v.product.CLI("audit", "--limit", "12")
	if r.Code != 0 {
		return r.String(), errors.New("there is no log")
	}
	for _, action := range audited {
		if one := v.product.CLI("audit", "--action", action); one.Code != 0 || !strings.Contains(one.Stdout, action) {
			return one.String(), fmt.Errorf("it does not tell of %s", action)
		}
	}
	if strings.Contains(r.Stdout, storedKey) || strings.Contains(r.Stdout, v.tunnel.Token) {
		return "", errors.New("it holds what must be in no log")
	}
	return r.Stdout, nil
}
