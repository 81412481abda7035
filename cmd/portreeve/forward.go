package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"portreeve.dev/gateway/client"
)

// forwardLasts is the longest life that a tunnel may have; it ends with the command.
const forwardLasts = 24 * time.Hour

func (a *app) forwardCommand() *cobra.Command {
	var sandbox, listen string
	c := &cobra.Command{Use: "forward PORT", Short: "Reach a port of a sandbox at a local address, over HTTP", Args: exactly("PORT"),
		Long: "Listens at a local address and carries HTTP from there, WebSockets and event streams too, to the port of a sandbox, through a\n" +
			"tunnel of its own that wants a token and ends with the command. It is an HTTP proxy: what does not speak HTTP can't be forwarded.",
		RunE: func(c *cobra.Command, args []string) error {
			port, err := parsePort(c, args[0])
			if err != nil {
				return err
			}
			if listen == "" {
				listen = net.JoinHostPort("127.0.0.1", strconv.Itoa(int(port)))
			}
			return a.forwardPort(c.Context(), sandbox, port, listen)
		}}
	c.Flags().StringVar(&sandbox, "sandbox", "", "the sandbox; default the youngest that runs")
	c.Flags().StringVar(&listen, "listen", "", "where to listen; default 127.0.0.1 and the same port")
	return c
}

func (a *app) forwardPort(ctx context.Context, sandbox string, port uint16, listen string) error {
	api, err := a.client()
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return &client.Hinted{Err: err, Hint: "choose another address: --listen 127.0.0.1:0 takes any free port"}
	}
	defer l.Close()
	if sandbox, err = a.pick(ctx, api, sandbox); err != nil {
		return err
	}
	_, t, err := openTunnel(ctx, api, sandbox, port, false, forwardLasts)
	if err != nil {
		return err
	}
	defer closeTunnel(api, t)
	proxy, err := newForwarder(t)
	if err != nil {
		return err
	}
	fmt.Fprintf(a.out, "http://%s\n", l.Addr())
	a.say("portreeve: goes to port %d of %s until %s; Ctrl-C ends it", port, sandbox, t.ExpiresAt.Local().Format(time.DateTime))
	return serveUntil(ctx, l, proxy)
}

// closeTunnel also works when the command's own context has ended.
func closeTunnel(api *client.Client, t *tunnel) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_ = api.Do(ctx, http.MethodDelete, "/sandbox/"+segment(t.Sandbox)+"/tunnels/"+segment(t.ID), nil, nil) // else it ends by itself
}

// serveUntil serves l until ctx ends.
func serveUntil(ctx context.Context, l net.Listener, h http.Handler) error {
	s := &http.Server{Handler: h, ReadHeaderTimeout: 30 * time.Second, ErrorLog: quietLog(),
		BaseContext: func(net.Listener) context.Context { return ctx }}
	stop := context.AfterFunc(ctx, func() { s.Close() })
	defer stop()
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// quietLog keeps what clients do wrong off the terminal.
func quietLog() *log.Logger { return log.New(io.Discard, "", 0) }

// newForwarder carries requests to the tunnel with its token. Only those are taken that name this machine: a page of another
// site could point a name of its own here, and its browser would bring its requests (DNS rebinding).
//
// To the application its address is localhost and its own port: Origin and Location are translated, by the tunnel and here.
func newForwarder(t *tunnel) (http.Handler, error) {
	target, err := url.Parse(t.best())
	if err != nil || target.Host == "" {
		return nil, fmt.Errorf("the tunnel's URL %q is not one", t.best())
	}
	origin := target.Scheme + "://" + target.Host
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target) // sets the host too
			r.Out.Header.Set("X-Portreeve-Token", t.Token)
			if r.In.Header.Get("Origin") == "http://"+r.In.Host {
				r.Out.Header.Set("Origin", origin)
			}
		},
		ModifyResponse: func(r *http.Response) error {
			// A path alone leads to where the client is. One with two slashes would lead elsewhere.
			if rest, ok := strings.CutPrefix(r.Header.Get("Location"), origin); ok && strings.HasPrefix(rest, "/") && !strings.HasPrefix(rest, "//") {
				r.Header.Set("Location", rest)
			}
			return nil
		},
		// HTTP/1 only, as WebSockets need it.
		Transport:     &http.Transport{DialContext: client.Dial, TLSClientConfig: &tls.Config{NextProtos: []string{"http/1.1"}}, IdleConnTimeout: time.Minute},
		FlushInterval: -1,
		ErrorLog:      quietLog(),
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			http.Error(w, "portreeve forward: "+err.Error(), http.StatusBadGateway)
		},
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !namesThisMachine(r.Host) {
			http.Error(w, "portreeve forward: call it by its address, or as localhost", http.StatusMisdirectedRequest)
			return
		}
		proxy.ServeHTTP(w, r)
	}), nil
}

func namesThisMachine(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	_, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil || strings.EqualFold(host, "localhost")
}
