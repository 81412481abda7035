// Command hostile is what the tests run inside a sandbox: it talks to the outside in ways that no well-behaved program
// would. It is built without cgo and carried in by the files API.
//
//	hostile tls NAME:PORT SNI HOST PATH   a TLS connection whose SNI and Host may name others
//	hostile http NAME:PORT HOST PATH      the same in the clear
//	hostile tcp NAME:PORT                 connects, prints the first line that comes, or what an echo gives back
//	hostile dns SERVER NAME               asks a server of its choice
//	hostile try SECONDS NAME ADDR ADDR6   tries to reach a host by every protocol, again and again
//
// It prints one line, "ok ..." with exit status 0, or "refused ..." with 1.
package main
