// Command hostile is what the tests run inside a sandbox: it talks to the outside in ways that no well-behaved program
// would. It is built without cgo and carried in by the files API.
//
//	hostile tls NAME:PORT SNI HOST PATH          a TLS connection whose SNI and Host may name others
//	hostile http NAME:PORT HOST PATH             the same in the clear
//	hostile requests NAME:PORT [TARGET HOST]...  requests in the clear, one after another on one connection
//	hostile tcp NAME:PORT                        connects, prints the first line that comes, or what an echo gives back
//	hostile self METHOD PATH BODY HEADER...      asks portreeve.internal with these headers, prints status and body
//	hostile udp NAME:PORT                        sends a packet, prints what comes back
//	hostile hold NAME:PORT                       connects to an echo and prints how long it was until the other side ended it
//	hostile drain NAME:PORT SNI HOST PATH FILE   downloads over TLS, at some 2 MiB/s; the file says how many bytes came so far, and
//	                                             why it ended
//	hostile pace COUNT EVERY NAME PATH           asks for a page again and again at that pace, prints how many came and how late
//	hostile flood SECONDS NAME OTHER             does at once all that costs the other side something: NAME is allowed, OTHER is not
//	hostile resolve NAME                         prints the address that the name is given
//	hostile dns SERVER NAME                      asks a server of its choice
//	hostile lookups SERVER NAME TIMES            asks for the name's IPv4 address so often, no more and no less, and prints the last answer's code
//	hostile opened SCRIPT                        says the requests of a script on one TLS connection, verified, and prints the answers
//	hostile messages URL                         sends a message over a WebSocket, prints what comes back
//	hostile events URL                           reads a stream of events, prints each with its time
//	hostile catch PORT                           answers whoever comes by TCP or UDP
//	hostile try SECONDS NAME ADDR ADDR6          tries to reach a host by every protocol, again and again; the file tries
//	                                             in the working folder says how often
//
// As process 1 of a sandbox it plays a bad init; the sandbox's variable MODE says which (see playInit).
//
// It prints one line, "ok ..." with exit status 0, or "refused ..." with 1.
package main
