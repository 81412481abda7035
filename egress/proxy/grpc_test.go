package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpctls "google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// plainText is a codec for strings, so that no protocol has to be compiled.
type plainText struct{}

func (plainText) Name() string                       { return "text" }
func (plainText) Marshal(v any) ([]byte, error)      { return []byte(*v.(*string)), nil }
func (plainText) Unmarshal(data []byte, v any) error { *v.(*string) = string(data); return nil }

// grpcService has a method of each kind. Each sets a trailer; "fail" ends with a status of its own.
var grpcService = grpc.ServiceDesc{
	ServiceName: "lab.Echo", HandlerType: (*any)(nil),
	Methods: []grpc.MethodDesc{{MethodName: "Unary", Handler: func(_ any, ctx context.Context, read func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		var in string
		if err := read(&in); err != nil {
			return nil, err
		}
		_ = grpc.SetTrailer(ctx, metadata.Pairs("lab-trailer", "unary"))
		if in == "fail" {
			return nil, status.Error(codes.ResourceExhausted, "as you asked")
		}
		out := "got " + in
		return &out, nil
	}}},
	Streams: []grpc.StreamDesc{
		{StreamName: "Down", ServerStreams: true, Handler: func(_ any, s grpc.ServerStream) error {
			var in string
			if err := s.RecvMsg(&in); err != nil {
				return err
			}
			for i := range 3 {
				out := fmt.Sprint(in, i)
				if err := s.SendMsg(&out); err != nil {
					return err
				}
			}
			s.SetTrailer(metadata.Pairs("lab-trailer", "down"))
			return nil
		}},
		{StreamName: "Both", ServerStreams: true, ClientStreams: true, Handler: func(_ any, s grpc.ServerStream) error {
			for {
				var in string
				switch err := s.RecvMsg(&in); {
				case errors.Is(err, io.EOF):
					s.SetTrailer(metadata.Pairs("lab-trailer", "both"))
					return nil
				case err != nil:
					return err
				}
				out := "got " + in
				if err := s.SendMsg(&out); err != nil {
					return err
				}
			}
		}},
	},
}

// grpcClient connects to good.test through the proxy, where a gRPC server of which nothing is known answers.
func (w *world) grpcClient() *grpc.ClientConn {
	w.t.Helper()
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	s := grpc.NewServer(grpc.ForceServerCodec(plainText{}), grpc.Creds(grpctls.NewServerTLSFromCert(w.realCA.leaf(w.t, "good.test"))))
	s.RegisterService(&grpcService, nil)
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(ln) }()
	w.t.Cleanup(func() { s.Stop(); <-done })
	w.dialer.serve("good.test", 443, ln.Addr().String())
	conn, err := grpc.NewClient("passthrough:///good.test:443",
		grpc.WithTransportCredentials(grpctls.NewTLS(&tls.Config{ServerName: "good.test", RootCAs: w.orgCA.pool()})),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return w.connect("good.test", 443), nil }),
		grpc.WithAuthority("good.test"), grpc.WithDefaultCallOptions(grpc.ForceCodec(plainText{})))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { conn.Close() })
	return conn
}

// B78: gRPC with a real client and server: messages of every kind one by one, statuses and trailers.
func TestGRPC(t *testing.T) {
	w := newWorld(t, allowGood)
	conn := w.grpcClient()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()

	var trailer metadata.MD
	in, out := "hello", ""
	if err := conn.Invoke(ctx, "/lab.Echo/Unary", &in, &out, grpc.Trailer(&trailer)); err != nil || out != "got hello" || trailer.Get("lab-trailer")[0] != "unary" {
		t.Fatalf("unary: %q, %v, %v", out, trailer, err)
	}
	in = "fail"
	if err := conn.Invoke(ctx, "/lab.Echo/Unary", &in, &out); status.Code(err) != codes.ResourceExhausted || status.Convert(err).Message() != "as you asked" {
		t.Errorf("a failing call: %v", err)
	}

	down, err := conn.NewStream(ctx, &grpcService.Streams[0], "/lab.Echo/Down")
	if err != nil {
		t.Fatal(err)
	}
	in = "n"
	if err := errors.Join(down.SendMsg(&in), down.CloseSend()); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		if err := down.RecvMsg(&out); err != nil || out != fmt.Sprint("n", i) {
			t.Fatalf("down: %q, %v", out, err)
		}
	}
	if err := down.RecvMsg(&out); !errors.Is(err, io.EOF) || down.Trailer().Get("lab-trailer")[0] != "down" {
		t.Errorf("down: %v, %v", err, down.Trailer())
	}

	both, err := conn.NewStream(ctx, &grpcService.Streams[1], "/lab.Echo/Both")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 5 { // each answer comes before the next question is asked
		in = fmt.Sprint(i)
		if err := both.SendMsg(&in); err != nil {
			t.Fatal(err)
		}
		if err := both.RecvMsg(&out); err != nil || out != "got "+in {
			t.Fatalf("both: %q, %v", out, err)
		}
	}
	if err := both.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if err := both.RecvMsg(&out); !errors.Is(err, io.EOF) || both.Trailer().Get("lab-trailer")[0] != "both" {
		t.Errorf("both: %v, %v", err, both.Trailer())
	}

	list := w.decisions(5, true) // the upstream was asked what it speaks, on the connection that all of the calls took
	if list[0].Layer != layerConnect || list[1].Path != "/lab.Echo/Unary" || len(w.dialer.dials()) != 1 {
		t.Errorf("dialled %v; decisions %+v", w.dialer.dials(), list)
	}
}
