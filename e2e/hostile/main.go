package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"time"
)

const limit = 8 * time.Second

func main() {
	if os.Getpid() == 1 {
		playInit(os.Getenv("PORTREEVE_ENV_MODE"))
	}
	said, err := run(os.Args[1:])
	if err != nil {
		fmt.Println("refused", err)
		os.Exit(1)
	}
	fmt.Println("ok", said)
}

func run(args []string) (string, error) {
	verb := ""
	if len(args) > 0 {
		verb, args = args[0], args[1:]
	}
	switch {
	case verb == "tls" && len(args) == 4:
		return overTLS(args[0], args[1], args[2], args[3])
	case verb == "http" && len(args) == 3:
		return inTheClear(args[0], args[1], args[2])
	case verb == "requests" && len(args)%2 == 1:
		return requests(args[0], args[1:])
	case verb == "self" && len(args) >= 3:
		return askSelf(args[0], args[1], args[2], args[3:])
	case verb == "tcp" && len(args) == 1:
		return plain(args[0])
	case verb == "udp" && len(args) == 1:
		return packet(args[0])
	case verb == "hold" && len(args) == 1:
		return hold(args[0])
	case verb == "drain" && len(args) == 5:
		return drain(args[0], args[1], args[2], args[3], args[4])
	case verb == "pace" && len(args) == 4:
		return pace(args[0], args[1], args[2], args[3])
	case verb == "flood" && len(args) == 3:
		return flood(args[0], args[1], args[2])
	case verb == "resolve" && len(args) == 1:
		return resolve(args[0])
	case verb == "dns" && len(args) == 2:
		return ask(args[0], args[1])
	case verb == "lookups" && len(args) == 3:
		return lookups(args[0], args[1], args[2])
	case verb == "opened" && len(args) == 1:
		return opened(args[0])
	case verb == "messages" && len(args) == 1:
		return messages(args[0])
	case verb == "events" && len(args) == 1:
		return events(args[0])
	case verb == "catch" && len(args) == 1:
		return catch(args[0])
	case verb == "try" && len(args) == 4:
		return try(args[0], args[1], args[2], args[3])
	}
	return "", errors.New("no such verb")
}

func dial(network, address string) (net.Conn, error) {
	c, err := net.DialTimeout(network, address, limit)
	if err == nil {
		c.SetDeadline(time.Now().Add(limit))
	}
	return c, err
}
