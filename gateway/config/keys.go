package config

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"portreeve.dev/policies"
)

// knownKeys refuses a key that into has no field for. The decoder would refuse it too, but without the way out.
func knownKeys(data []byte, into any) error {
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil || len(doc.Content) == 0 {
		return err
	}
	return check(doc.Content[0], reflect.TypeOf(into).Elem(), "")
}

func check(n *yaml.Node, t reflect.Type, path string) error {
	switch {
	case t.Kind() == reflect.Slice && n.Kind == yaml.SequenceNode:
		for i, item := range n.Content {
			if err := check(item, t.Elem(), fmt.Sprintf("%s[%d]", path, i)); err != nil {
				return err
			}
		}
	case t.Kind() == reflect.Struct && n.Kind == yaml.MappingNode:
		fields := known(t)
		for i := 0; i+1 < len(n.Content); i += 2 {
			key := n.Content[i].Value
			at := strings.TrimPrefix(path+"."+key, ".")
			field, ok := fields[key]
			if !ok {
				return fmt.Errorf("line %d: unknown key %q; %s", n.Content[i].Line, at, policies.Nearest(key, slices.Sorted(maps.Keys(fields))))
			}
			if err := check(n.Content[i+1], field, at); err != nil {
				return err
			}
		}
	}
	return nil
}

func known(t reflect.Type) map[string]reflect.Type {
	fields := make(map[string]reflect.Type, t.NumField())
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		fields[name] = f.Type
	}
	return fields
}
