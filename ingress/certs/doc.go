// Package certs gives each TLS connection its certificate.
//
// A machine of its own has a development authority, which control makes once and keeps sealed:
//
//	ca, err := certs.NewDevCA(domain, time.Now())          // certificate and key as bytes
//	signer, err := certs.LoadDevCA(certificate, key)       // ingress
//	source, err := certs.New(certs.Config{Issuer: signer, Known: table.Known})
//	tls.Config{GetCertificate: source.Get}
//
// The authority can sign for the tunnel domain only, says so in its certificate, critically, and can sign no other authority:
// who trusts it trusts it for nothing else. Each host gets a leaf and a key of its own, made at the first hello.
//
// # Security invariants
//
//   - IC-1: only a host in the route table gets a certificate; for all others nothing is signed or kept (TestOnlyKnownHostsGetACertificate).
//   - IC-2: the authority is believed for the tunnel domain alone: for no other name and for no address (TestAuthorityIsConfined).
//   - IC-3: a leaf names exactly one host, with a key of its own (TestLeafNamesOneHost).
//   - IC-4: what is kept is bounded, and many hellos for one name at once are one signature (TestLeavesAreBounded, TestOneFlightPerName).
//   - IC-5: the hello that comes as a flight ends gets that flight's certificate (TestFlightThatEndedIsSeen).
//
// # Not here
//
// Certificates of a public authority: another Issuer.
//
// # Failure
//
// There is nobody to ask and nothing to wait for. A hello that gets no certificate ends with the alert unrecognized_name.
package certs
