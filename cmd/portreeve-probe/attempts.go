package main

import (
	"fmt"
	"net"
	"net/netip"
	"syscall"
)

// Addresses that a way out would lead to: public resolvers and the metadata services of the clouds.
var outside = []string{"1.1.1.1", "8.8.8.8", "9.9.9.9"}
var metadata = []string{"169.254.169.254", "169.254.170.2", "100.100.100.200", "168.63.129.16"}

func attempts() []attempt {
	var all []attempt
	for _, host := range append(append([]string{}, outside...), metadata...) {
		for _, port := range []int{80, 443, 22} {
			all = append(all, tcp("tcp4", host, port))
		}
	}
	for _, host := range neighbours() {
		for _, port := range []int{22, 80, 8080, 8443, 15001} {
			all = append(all, tcp("tcp4", host, port))
		}
	}
	for _, host := range []string{"10.0.0.1", "172.16.0.1", "192.168.0.1", "0.1.2.3", "198.18.200.200", "224.0.0.1", "240.0.0.9", "255.255.255.254"} {
		all = append(all, tcp("tcp4", host, 80))
	}
	for _, host := range []string{"2606:4700:4700::1111", "fd00:ec2::254", "fe80::1%eth0", "::ffff:1.1.1.1"} {
		all = append(all, tcp("tcp", host, 80))
	}
	for _, server := range append(append([]string{}, outside...), neighbours()...) {
		all = append(all, query("udp4", server, 53), query("tcp4", server, 53), query("udp4", server, 5353), query("tcp4", server, 853))
	}
	for _, host := range append([]string{"224.0.0.251", "255.255.255.255"}, outside...) {
		all = append(all, udp("udp4", host, 443), udp("udp4", host, 123), udp("udp4", host, 53))
	}
	all = append(all, udp("udp6", "2606:4700:4700::1111", 443),
		socket("icmp echo socket", syscall.AF_INET, syscall.SOCK_DGRAM, syscall.IPPROTO_ICMP),
		socket("raw ip socket", syscall.AF_INET, syscall.SOCK_RAW, syscall.IPPROTO_RAW),
		socket("raw icmp socket", syscall.AF_INET, syscall.SOCK_RAW, syscall.IPPROTO_ICMP),
		socket("raw sctp socket", syscall.AF_INET, syscall.SOCK_RAW, 132),
		socket("raw gre socket", syscall.AF_INET, syscall.SOCK_RAW, 47),
		socket("packet socket", syscall.AF_PACKET, syscall.SOCK_RAW, 0x0300),
		name("example.com"), name("metadata.google.internal"), name("localhost.localdomain"),
		control("/run/portreeve/init.sock"))
	return all
}

// small is one attempt of each kind, with the layer of Portreeve that has to refuse it.
func small() []attempt {
	of := func(layer string, all ...attempt) []attempt {
		for i := range all {
			all[i].layer = layer
		}
		return all
	}
	all := of("proxy", tcp("tcp4", outside[0], 443), tcp("tcp4", metadata[0], 80))
	all = append(all, of("dns", query("udp4", outside[0], 53), query("tcp4", outside[0], 53))...)
	kernel := of("kernel", udp("udp4", outside[0], 443), tcp("tcp", "2606:4700:4700::1111", 443),
		socket("raw icmp socket", syscall.AF_INET, syscall.SOCK_RAW, syscall.IPPROTO_ICMP))
	if near := neighbours(); len(near) > 1 {
		kernel = append(kernel, of("kernel", query("udp4", near[1], 5353))...)
	}
	return append(all, kernel...)
}

// neighbours are our own end's peer and the address pairs beside ours.
func neighbours() []string {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return nil
	}
	for _, a := range addrs {
		prefix, err := netip.ParsePrefix(a.String())
		if err != nil || !prefix.Addr().Is4() || prefix.Addr().IsLoopback() {
			continue
		}
		own := prefix.Addr()
		near := []string{own.Prev().String()}
		for _, step := range []int{2, 4, -2, -4} {
			near = append(near, moved(own, step))
		}
		return near
	}
	return nil
}

func moved(a netip.Addr, by int) string {
	for ; by > 0; by-- {
		a = a.Next()
	}
	for ; by < 0; by++ {
		a = a.Prev()
	}
	return fmt.Sprint(a)
}
