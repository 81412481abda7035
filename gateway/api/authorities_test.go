package api_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"strings"
	"testing"

	"portreeve.dev/gateway/api/apitest"
)

func TestAuthorityIsRotatedAndListed(t *testing.T) {
	w := apitest.New(t)
	c, other := w.Org("one"), w.Org("two")
	first := c.Do("GET", "/settings/ca", nil).Want(200)
	if first.String("roots.0.state") != "signing" || !strings.Contains(first.String("trust"), "BEGIN CERTIFICATE") {
		t.Errorf("at first: %s", first.Body)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Authorities.Sign(t.Context(), c.Org, &key.PublicKey); err != nil {
		t.Fatal(err)
	}
	serial := c.Do("GET", "/settings/ca", nil).Want(200).String("intermediates.0.serial")
	revoke := "/settings/ca/intermediates/" + serial + "/revoke"
	other.Do("POST", revoke, nil).Refused(404, "intermediate_not_found")
	c.Do("POST", "/settings/ca/intermediates/0a/revoke", nil).Refused(404, "intermediate_not_found")
	if a := c.Do("POST", revoke+"?wait=applied", nil).Want(200); a.String("intermediates.0.revoked_at") == "" {
		t.Errorf("revoked: %s", a.Body)
	}

	at := strings.TrimSuffix(w.URL, "/api/v1")
	path := first.String("roots.0.crl")
	list := w.Send("GET", at+path, "", nil, nil).Want(200)
	if l, err := x509.ParseRevocationList(list.Body); err != nil || len(l.RevokedCertificateEntries) != 1 || list.Header.Get("Content-Type") != "application/pkix-crl" {
		t.Errorf("the list: %v, %v", list.Header, err)
	}
	for _, none := range []string{strings.Replace(path, c.Org, other.Org, 1), strings.TrimSuffix(path, ".crl"), "/ca/", "/ca/" + c.Org + "/00.crl"} {
		w.Send("GET", at+none, "", nil, nil).Refused(404, "list_not_found")
	}
	w.Send("POST", at+path, "", nil, nil).Refused(404, "route_not_found")

	c.Do("POST", "/settings/ca/rotate", object{"after_seconds": -1}).Refused(422, "invalid_request", "body.after_seconds")
	if a := c.Do("POST", "/settings/ca/rotate?wait=applied", object{}).Want(200); a.String("roots.0.state") != "next" || a.String("roots.1.state") != "signing" || a.String("roots.0.changes_at") == "" {
		t.Errorf("rotating: %s", a.Body)
	}
	c.Do("POST", "/settings/ca/rotate", object{}).Refused(409, "rotation_under_way")
	if a := c.Do("POST", "/settings/ca/rotate", object{"after_seconds": 0}).Want(200); a.String("roots.0.state") != "signing" || a.String("roots.1.state") != "retired" || a.String("roots.2.state") != "retired" || a.At("roots.2.crl") != nil {
		t.Errorf("at once: %s", a.Body)
	}
	w.Send("GET", at+path, "", nil, nil).Refused(404, "list_not_found")
	if a := other.Do("GET", "/settings/ca", nil).Want(200); a.At("roots.1") != nil {
		t.Errorf("another org's: %s", a.Body)
	}
}
