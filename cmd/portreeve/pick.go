package main

import (
	"context"
	"errors"
	"net/http"

	"portreeve.dev/gateway/client"
)

// boxes lists the live sandboxes.
func boxes(ctx context.Context, api *client.Client) ([]box, error) {
	var list struct {
		Sandboxes []box `json:"sandboxes"`
	}
	err := api.Do(ctx, http.MethodGet, "/sandboxes", nil, &list)
	return list.Sandboxes, err
}

// pick returns the sandbox that a command is about: the one that was named, else the youngest that runs, else the youngest that
// is paused. It says which, as nobody named it.
func (a *app) pick(ctx context.Context, api *client.Client, named string) (string, error) {
	if named != "" {
		return named, nil
	}
	all, err := boxes(ctx, api)
	if err != nil {
		return "", err
	}
	for _, status := range []string{"running", "paused"} {
		var found box
		for _, b := range all {
			if b.Status == status && (found.ID == "" || b.CreatedAt.After(found.CreatedAt)) {
				found = b
			}
		}
		if found.ID != "" {
			a.say("portreeve: in %s, which is %s", found.ID, status)
			return found.ID, nil
		}
	}
	return "", &client.Hinted{Err: errors.New("no sandbox runs here"), Hint: "make one with: portreeve sandbox create"}
}
