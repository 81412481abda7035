// Command query is the client of PostgreSQL that tests run inside a sandbox. It is built without cgo and carried in by the files API.
//
//	query DSN STATEMENT    runs the statement and prints its rows, fields apart by "|"
//
// It prints "refused ..." and ends with status 1 if that does not work.
package main
