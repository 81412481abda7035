// Package seal encrypts what the store keeps of private keys and credentials.
//
// A Keyring holds the master keys by version. Each record is sealed under a key of its own, derived from the newest master
// key and a random salt (HKDF-SHA256, RFC 5869), with AES-256-GCM, and bound to what it is:
//
//	sealed, err := ring.Seal(seal.Record{Kind: "secret", Org: org, Name: "api", Version: 3}, value)
//	value, err := ring.Open(the same record, sealed)
//
// # Security invariants
//
//   - SE-1: a record opens only as what it was sealed as: another kind, org, name or version fails (TestSealedBytesAreBound).
//   - SE-2: a changed byte fails (TestChangedBytesFail).
//   - SE-3: a keyring is never made silently where one may be lost (TestKeyringIsMadeOnlyOnPurpose).
//
// # Not here
//
// Who may open what: secrets and gateway decide. Rotation of stored records: gateway re-seals.
//
// # Failure
//
// Without the master key of a record's version Open fails with ErrNoKey; nothing is guessed.
package seal
