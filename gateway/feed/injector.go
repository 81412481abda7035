package feed

import (
	"portreeve.dev/secrets"
)

// newInjector takes the values out of a state. A secret that can't be used is kept without its value: where one of its grants
// fits nothing goes out, and no other secret feels it. What is returned names the secret and never holds its value.
func newInjector(org string, list []Secret) (*secrets.Injector, []Closed) {
	var closed []Closed
	var all []secrets.Secret
	for _, s := range list {
		one, err := usable(s)
		if err != nil {
			one = shut(s)
			if len(s.Value) > 0 { // without one control knows already
				closed = append(closed, Closed{Org: org, Secret: s.ID, Reason: err.Error()})
			}
		}
		all = append(all, one)
	}
	injector, err := secrets.NewInjector(all)
	if err != nil { // each of them was accepted alone
		panic("joining secrets: " + err.Error())
	}
	return injector, closed
}

// usable is a secret as the injector takes it.
func usable(s Secret) (secrets.Secret, error) {
	value, err := secrets.NewValue(s.Value)
	if err != nil {
		return secrets.Secret{}, err
	}
	one := secrets.Secret{ID: s.ID, Version: s.Version, Value: value, Grants: s.Grants}
	_, err = secrets.NewInjector([]secrets.Secret{one})
	return one, err
}

// shut is a secret that can't be used: without a value, and with a grant that can't be read made to fit all of its host, so
// that what it would have fitted goes out without it nowhere.
func shut(s Secret) secrets.Secret {
	one := secrets.Secret{ID: s.ID, Version: s.Version}
	for _, g := range s.Grants {
		if g.Complete() != nil {
			g = secrets.Grant{Host: g.Host, Port: g.Port, Place: secrets.PlaceHeader, Header: "Authorization"}
			if g.Complete() != nil {
				continue // its host is none: no request has it
			}
		}
		one.Grants = append(one.Grants, g)
	}
	return one
}
