package lab

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"
	"time"
)

// A Packet is one frame on the uplink, as far as the judge needs to read it.
type Packet struct {
	At       time.Time
	FromGate bool       // sent by the product's side
	Kind     string     // ip4, ip6, arp, or other with the frame's type
	Src, Dst netip.Addr // for arp: who asks, and who is asked for
	Proto    uint8      // IP protocol: 1 icmp, 6 tcp, 17 udp, 58 icmpv6
	SrcPort  uint16     // tcp and udp
	DstPort  uint16     //
	SYN      bool       // a tcp opening, without ACK
	Fragment bool       // a later fragment, whose ports are not in it
	Type     uint8      // of an icmp message
	Payload  []byte     // the beginning of what tcp or udp carries
	Broken   bool       // could not be read to its end
	Len      int        // of the whole frame
}

func (p Packet) String() string {
	way := "to gateway"
	if p.FromGate {
		way = "from gateway"
	}
	return fmt.Sprintf("%s %s %s proto %d %v:%d -> %v:%d, %d bytes", p.At.Format("15:04:05.000"), way, p.Kind, p.Proto, p.Src, p.SrcPort, p.Dst, p.DstPort, p.Len)
}

// Touches says that the packet goes to addr, comes from it, or asks for it.
func (p Packet) Touches(addr netip.Addr) bool { return p.Src == addr || p.Dst == addr }

// Says reports whether the packet's payload holds the host name, written plainly or as DNS does.
func (p Packet) Says(host string) bool {
	payload := strings.ToLower(string(p.Payload))
	if strings.Contains(payload, host) {
		return true
	}
	var wire strings.Builder
	for _, label := range strings.Split(host, ".") {
		wire.WriteByte(byte(len(label)))
		wire.WriteString(label)
	}
	return strings.Contains(payload, wire.String())
}

const (
	protoICMP   = 1
	protoTCP    = 6
	protoUDP    = 17
	protoICMPv6 = 58

	payloadKept = 512
)

// parseFrame reads an Ethernet frame. It never fails: what it can't read is marked Broken, so that no one takes an
// unread packet for a harmless one.
func parseFrame(b []byte) Packet {
	if len(b) < 14 {
		return Packet{Kind: "other", Broken: true}
	}
	kind, b := binary.BigEndian.Uint16(b[12:]), b[14:]
	switch kind {
	case 0x0800:
		return parseIPv4(b)
	case 0x86dd:
		return parseIPv6(b)
	case 0x0806:
		p := Packet{Kind: "arp"}
		if len(b) < 28 || binary.BigEndian.Uint16(b[2:]) != 0x0800 {
			p.Broken = true
			return p
		}
		p.Src, p.Dst = netip.AddrFrom4([4]byte(b[14:18])), netip.AddrFrom4([4]byte(b[24:28]))
		return p
	}
	return Packet{Kind: fmt.Sprintf("other %#04x", kind)}
}

func parseIPv4(b []byte) Packet {
	p := Packet{Kind: "ip4"}
	head := 0
	if len(b) >= 20 {
		head = int(b[0]&0xf) * 4
	}
	if head < 20 || len(b) < head || b[0]>>4 != 4 {
		p.Broken = true
		return p
	}
	p.Src, p.Dst = netip.AddrFrom4([4]byte(b[12:16])), netip.AddrFrom4([4]byte(b[16:20]))
	p.Proto = b[9]
	p.Fragment = binary.BigEndian.Uint16(b[6:])&0x1fff != 0
	if total := int(binary.BigEndian.Uint16(b[2:])); total >= head && total < len(b) {
		b = b[:total] // short frames are padded
	}
	if !p.Fragment {
		p.parseTransport(b[head:])
	}
	return p
}

func parseIPv6(b []byte) Packet {
	p := Packet{Kind: "ip6"}
	if len(b) < 40 || b[0]>>4 != 6 {
		p.Broken = true
		return p
	}
	p.Src, p.Dst = netip.AddrFrom16([16]byte(b[8:24])), netip.AddrFrom16([16]byte(b[24:40]))
	next, b := b[6], b[40:]
	for {
		switch next {
		case 0, 43, 60: // hop by hop, routing, destination options
			if len(b) < 8 || len(b) < 8+int(b[1])*8 {
				p.Proto, p.Broken = next, true
				return p
			}
			next, b = b[0], b[8+int(b[1])*8:]
		case 44:
			if len(b) < 8 {
				p.Proto, p.Broken = next, true
				return p
			}
			p.Fragment = binary.BigEndian.Uint16(b[2:])&0xfff8 != 0
			next, b = b[0], b[8:]
		default:
			p.Proto = next
			if !p.Fragment {
				p.parseTransport(b)
			}
			return p
		}
	}
}

func (p *Packet) parseTransport(b []byte) {
	head := 0
	switch p.Proto {
	case protoTCP:
		if len(b) < 20 {
			p.Broken = true
			return
		}
		const syn, ack = 0x02, 0x10
		p.SYN = b[13]&(syn|ack) == syn
		head = int(b[12]>>4) * 4
	case protoUDP:
		head = 8
	case protoICMP, protoICMPv6:
		if len(b) < 4 {
			p.Broken = true
			return
		}
		p.Type = b[0]
		return
	default:
		return
	}
	if len(b) < 8 {
		p.Broken = true
		return
	}
	p.SrcPort, p.DstPort = binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:])
	if head > len(b) {
		p.Broken = true
		return
	}
	b = b[head:]
	p.Payload = append([]byte(nil), b[:min(len(b), payloadKept)]...)
}

// housekeeping says that the packet is the kernel's own talk with its neighbour on the link.
func (p Packet) housekeeping() bool {
	if p.Kind == "arp" {
		return near.Contains(p.Dst)
	}
	return p.Proto == protoICMPv6 && (p.Type >= 130 && p.Type <= 137 || p.Type == 143) &&
		(p.Dst.IsMulticast() || p.Dst.IsLinkLocalUnicast() || six.Contains(p.Dst))
}
