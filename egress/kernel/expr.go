package kernel

import (
	"github.com/google/nftables"
	bin "github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// A rule is a list of expressions; the helpers below return the pieces of one.
type rule []expr.Any

// join makes one rule of its parts.
func join(parts ...rule) rule {
	var r rule
	for _, p := range parts {
		r = append(r, p...)
	}
	return r
}

func accept() rule { return rule{&expr.Verdict{Kind: expr.VerdictAccept}} }
func drop() rule   { return rule{&expr.Verdict{Kind: expr.VerdictDrop}} }
func count() rule  { return rule{&expr.Counter{}} }

func goTo(chain string) rule { return rule{&expr.Verdict{Kind: expr.VerdictGoto, Chain: chain}} }

func rejectPort() rule {
	return rule{&expr.Reject{Type: unix.NFT_REJECT_ICMPX_UNREACH, Code: unix.NFT_REJECT_ICMPX_PORT_UNREACH}}
}

func rejectProhibited() rule {
	return rule{&expr.Reject{Type: unix.NFT_REJECT_ICMPX_UNREACH, Code: unix.NFT_REJECT_ICMPX_ADMIN_PROHIBITED}}
}

func rejectReset() rule { return rule{&expr.Reject{Type: unix.NFT_REJECT_TCP_RST}} }

func load(k expr.MetaKey) expr.Any { return &expr.Meta{Key: k, Register: 1} }

func matches(op expr.CmpOp, b ...byte) expr.Any { return &expr.Cmp{Op: op, Register: 1, Data: b} }

func is(k expr.MetaKey, b ...byte) rule    { return rule{load(k), matches(expr.CmpOpEq, b...)} }
func isNot(k expr.MetaKey, b ...byte) rule { return rule{load(k), matches(expr.CmpOpNeq, b...)} }

func ipv4() rule { return is(expr.MetaKeyNFPROTO, unix.NFPROTO_IPV4) }
func ipv6() rule { return is(expr.MetaKeyNFPROTO, unix.NFPROTO_IPV6) }
func tcp() rule  { return is(expr.MetaKeyL4PROTO, unix.IPPROTO_TCP) }
func udp() rule  { return is(expr.MetaKeyL4PROTO, unix.IPPROTO_UDP) }

func payload(register uint32, base expr.PayloadBase, offset, length uint32) expr.Any {
	return &expr.Payload{DestRegister: register, Base: base, Offset: offset, Len: length}
}

func sourcePort(p uint16) rule {
	return rule{payload(1, expr.PayloadBaseTransportHeader, 0, 2), matches(expr.CmpOpEq, bin.BigEndian.PutUint16(p)...)}
}

func destPort(p uint16) rule {
	return rule{payload(1, expr.PayloadBaseTransportHeader, 2, 2), matches(expr.CmpOpEq, bin.BigEndian.PutUint16(p)...)}
}

// isFragment: more-fragments bit or an offset.
func isFragment() rule {
	return rule{payload(1, expr.PayloadBaseNetworkHeader, 6, 2), masked(0x3f, 0xff), matches(expr.CmpOpNeq, 0, 0)}
}

// opening compares the four flags that tell a first SYN from everything else.
func opening(op expr.CmpOp) rule {
	return rule{payload(1, expr.PayloadBaseTransportHeader, 13, 1), masked(0x17), matches(op, 0x02)}
}

func masked(mask ...byte) expr.Any {
	return &expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: uint32(len(mask)), Mask: mask, Xor: make([]byte, len(mask))}
}

// socketIs compares one byte: that is all the expression writes.
func socketIs(k expr.SocketKey, v byte) rule {
	return rule{&expr.Socket{Key: k, Register: 1}, matches(expr.CmpOpEq, v)}
}

func setMark(m uint32) rule {
	return rule{&expr.Immediate{Register: 1, Data: bin.NativeEndian.PutUint32(m)}, &expr.Meta{Key: expr.MetaKeyMARK, SourceRegister: true, Register: 1}}
}

func isMark(m uint32) rule { return is(expr.MetaKeyMARK, bin.NativeEndian.PutUint32(m)...) }

// tproxy hands the packet to the listener at 127.0.0.1:port, and breaks its rule off when there is none. The rule
// must have matched IPv4 and the protocol before.
func tproxy(port uint16) rule {
	return rule{
		&expr.Immediate{Register: 1, Data: []byte{127, 0, 0, 1}},
		&expr.Immediate{Register: 2, Data: bin.BigEndian.PutUint16(port)},
		&expr.TProxy{Family: unix.NFPROTO_IPV4, TableFamily: unix.NFPROTO_IPV4, RegAddr: 1, RegPort: 2},
	}
}

// budget writes the link into the set and goes on only while that worked and the link is under its rate.
func budget(s *nftables.Set, perSecond uint32) rule {
	return rule{load(expr.MetaKeyIIFNAME), &expr.Dynset{
		SrcRegKey: 1, SetName: s.Name, Operation: unix.NFT_DYNSET_OP_UPDATE,
		Exprs: []expr.Any{&expr.Limit{Type: expr.LimitTypePkts, Rate: uint64(perSecond), Unit: expr.LimitTimeSecond, Burst: 2 * perSecond}},
	}}
}

// tally counts per link. Nothing may stand behind it in the same rule.
func tally(s *nftables.Set) rule {
	return rule{load(expr.MetaKeyIIFNAME), &expr.Dynset{
		SrcRegKey: 1, SetName: s.Name, Operation: unix.NFT_DYNSET_OP_UPDATE, Exprs: []expr.Any{&expr.Counter{}},
	}}
}

func lookup(s *nftables.Set, invert bool) expr.Any {
	return &expr.Lookup{SourceRegister: 1, SetName: s.Name, Invert: invert}
}

// linkName is compared as 16 bytes, padded with zeros.
func linkName(s string) []byte {
	b := make([]byte, 16)
	copy(b, s)
	return b
}
