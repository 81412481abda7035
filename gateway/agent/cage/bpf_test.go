package cage

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// obvious is the filter without any jump.
func obvious(rules []rule, arch, wantArch uint32, x32 bool, nr uint32, args [6]uint64) uint32 {
	if arch != wantArch || x32 && nr >= 0x40000000 {
		return unix.SECCOMP_RET_KILL_PROCESS
	}
	for _, r := range rules {
		if r.nr != nr {
			continue
		}
		for _, a := range r.alternatives {
			holds := true
			for _, w := range a.wants {
				holds = holds && args[w.arg] == w.value
			}
			if holds {
				return a.verdict()
			}
		}
	}
	return unix.SECCOMP_RET_KILL_PROCESS
}

// judge runs the program. The machine reads big endian, the kernel in its own order: so the words are written that way.
func judge(t testing.TB, p []bpf.RawInstruction, arch, nr uint32, args [6]uint64) uint32 {
	t.Helper()
	var prog []bpf.Instruction
	for _, r := range p {
		prog = append(prog, r.Disassemble())
	}
	vm, err := bpf.NewVM(prog)
	if err != nil {
		t.Fatal(err)
	}
	data := make([]byte, 64)
	binary.BigEndian.PutUint32(data[offsetNr:], nr)
	binary.BigEndian.PutUint32(data[offsetArch:], arch)
	for i, a := range args {
		binary.BigEndian.PutUint32(data[offsetArgs+8*i:], uint32(a))
		binary.BigEndian.PutUint32(data[offsetArgs+8*i+4:], uint32(a>>32))
	}
	v, err := vm.Run(data)
	if err != nil {
		t.Fatal(err)
	}
	return uint32(v)
}

func FuzzProgramIsTheRules(f *testing.F) {
	f.Add(uint64(1), uint8(3))
	f.Add(uint64(99), uint8(40))
	f.Fuzz(func(t *testing.T, seed uint64, n uint8) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		small := func() uint64 { // few values, so that numbers and arguments meet, some beyond 32 bits
			return uint64(rnd.IntN(4)) | uint64(rnd.IntN(3)/2)<<32
		}
		var rules []rule
		for nr := range uint32(n % 8) {
			r := rule{nr: nr}
			for range rnd.IntN(4) {
				var a alternative
				for range rnd.IntN(4) {
					a.wants = append(a.wants, want{rnd.IntN(6), small()})
				}
				a.errno = unix.Errno(rnd.IntN(3))
				r.alternatives = append(r.alternatives, a)
			}
			rules = append(rules, r)
		}
		p, err := assemble(7, seed%2 == 0, rules)
		if err != nil {
			t.Fatal(err)
		}
		for range 200 {
			arch, nr := uint32(7), uint32(rnd.IntN(10))
			if rnd.IntN(20) == 0 {
				arch = 8
			}
			if rnd.IntN(20) == 0 {
				nr |= 0x40000000
			}
			args := [6]uint64{small(), small(), small(), small(), small(), small()}
			if got, want := judge(t, p, arch, nr, args), obvious(rules, arch, 7, seed%2 == 0, nr, args); got != want {
				t.Fatalf("call %d %v: %#x, want %#x\n%+v", nr, args, got, want, rules)
			}
		}
	})
}

func TestTooLongARuleIsAnError(t *testing.T) {
	var r rule
	for range 30 {
		r.alternatives = append(r.alternatives, onlyIf(want{0, 1}, want{1, 1}, want{2, 1}))
	}
	if _, err := assemble(7, false, []rule{r}); err == nil {
		t.Error("assembled")
	}
}
