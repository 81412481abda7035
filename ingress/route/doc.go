// Package route says which tunnel a host name is, out of memory.
//
// Control pushes records; a lookup is a map access and asks nobody:
//
//	table := route.NewTable(route.TableConfig{OnChange: server.changed})
//	table.Replace(records) // the whole state, at first and after a gap
//	table.Apply(record)    // one change
//	table.Heartbeat()      // nothing changed
//	record, err := table.Lookup(host)
//
// A Zone prints and parses the names under the tunnel domain, <slug>-<port>.<domain>. Split and hostname.Normalize are the only
// way from what a client sent to the name that is looked up.
//
// # Security invariants
//
//   - IR-1: an expired, deleted or forgotten tunnel is gone, by the clock and without word from control (TestExpiredTunnelIsGone, TestForgottenTunnelIsGone).
//   - IR-2: a host that the table does not know is unknown only while control was heard from lately; else nothing is known of it (TestUnknownHostWhileStale).
//   - IR-3: every accepted spelling of a host leads to the same record, and what is more than a host and a port is refused (TestSpellingsOfOneHost, FuzzSplit).
//   - IR-4: a host names one slug and one port, and each pair has one host (TestOtherNamesAreNoTunnels, TestHostNamesRoundTrip, FuzzParse).
//   - IR-5: a record that is not whole changes nothing, and those that came with it neither (TestBrokenRecordIsRefusedWhole).
//
// # Not here
//
// Who may use a tunnel (access). Ending what is open when a record changes: OnChange tells.
//
// # Failure
//
// With control gone, known tunnels go on until they end by themselves; of other hosts a lookup says ErrStale.
package route
