package api

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
)

// decode reads a JSON body strictly. Its refusals name the field, never what was in it.
func decode(r *http.Request, v any) error {
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return refuseJSON(err)
	}
	if _, err := d.Token(); err != io.EOF {
		return problem(http.StatusBadRequest, "bad_request", "there is more than one JSON value", FieldError{"body", "is not one JSON value"})
	}
	return nil
}

func refuseJSON(err error) *Problem {
	if errors.Is(err, io.EOF) {
		return problem(http.StatusBadRequest, "bad_request", "request body is required", FieldError{"body", "is missing"})
	}
	if p, ok := errors.AsType[*Problem](err); ok { // from an UnmarshalJSON of ours
		return p
	}
	if t, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return invalid("body."+t.Field, "must be of type "+kindName(t.Type.Kind().String()))
	}
	// encoding/json has no type for this one; the name is the client's own word for a field.
	if _, name, ok := strings.Cut(err.Error(), "json: unknown field "); ok {
		return invalid("body."+strings.Trim(name, `"`), "unexpected property")
	}
	return problem(http.StatusBadRequest, "bad_request", "the body is not valid JSON", FieldError{"body", "is not valid JSON"})
}

func kindName(kind string) string {
	switch {
	case strings.HasPrefix(kind, "int"), strings.HasPrefix(kind, "uint"):
		return "integer"
	case kind == "slice":
		return "array"
	case kind == "map", kind == "struct":
		return "object"
	}
	return kind
}
