package decisions

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"sync"
)

const ledgerName = "spool.seq"

// The ledger is a small file of fixed places that are overwritten where they stand: a full disk doesn't keep a loss from being
// counted, and what was written survives the death of the process. Per org it knows how many lines were lost, and up to which
// number it may draw (a block); the blocks are synced, so that no number is given twice even after the machine has crashed.
type ledger struct {
	mu    sync.Mutex
	file  *os.File // nil: counting goes on in memory only
	head  ledgerHead
	slots map[string]*slot
}

type ledgerHead struct {
	id    string // of the spool
	boot  string // of the machine
	life  uint64 // how often the spool was opened
	clean bool   // it was closed
}

// A slot is what is kept of one org.
type slot struct {
	place    int
	reserved uint64 // numbers up to here may be drawn
	counts   losses
	told     losses // what the other side knows; in memory only
}

// losses are numbers without a row.
type losses struct {
	lost   uint64 // all of them, but for the unsure
	budget uint64 // of those: lines beyond a sandbox's budget
	unsure uint64 // numbers that a crash of the machine, or an older copy of the file, left open: each was a line, or never drawn
}

func (l losses) total() uint64 { return l.lost + l.unsure }

// Sizes in the file. A page of head, then the slots; there is room for some at once, so that those need no space later.
const (
	headSize   = 4096
	slotSize   = 128
	maxOrgName = 63
	firstSlots = 32
	maxSlots   = 1 << 16
	block      = 8192 // numbers that are reserved at a time
)

var ledgerMagic = [8]byte{'P', 'R', 'T', 'R', 'S', 'E', 'Q', '1'}

var errLedger = errors.New("the ledger of sequence numbers is damaged")

func newLedger() *ledger { return &ledger{slots: make(map[string]*slot)} }

// readLedger reads a whole file. What isn't exactly as it was written is an error.
func readLedger(r io.Reader) (ledgerHead, map[string]*slot, error) {
	all, err := io.ReadAll(io.LimitReader(r, headSize+slotSize*maxSlots+1))
	if err != nil {
		return ledgerHead{}, nil, err
	}
	if len(all) < headSize || (len(all)-headSize)%slotSize != 0 {
		return ledgerHead{}, nil, errLedger
	}
	head, err := parseHead(all[:headSize])
	if err != nil {
		return head, nil, err
	}
	slots := make(map[string]*slot)
	for i := 0; headSize+i*slotSize < len(all); i++ {
		b := all[headSize+i*slotSize:][:slotSize]
		if b[0] == 0 {
			continue
		}
		name, s, err := parseSlot(b)
		if err != nil || slots[name] != nil {
			return head, nil, errLedger
		}
		s.place = i
		slots[name] = s
	}
	return head, slots, nil
}

func parseHead(b []byte) (h ledgerHead, err error) {
	if [8]byte(b[:8]) != ledgerMagic || binary.LittleEndian.Uint32(b[120:]) != crc32.ChecksumIEEE(b[:120]) {
		return h, errLedger
	}
	h.id, h.boot = text(b[8:48]), text(b[48:88])
	h.life, h.clean = binary.LittleEndian.Uint64(b[88:]), b[96] == 1
	return h, nil
}

func (h ledgerHead) bytes() []byte {
	b := make([]byte, 124)
	copy(b, ledgerMagic[:])
	copy(b[8:48], h.id)
	copy(b[48:88], h.boot)
	binary.LittleEndian.PutUint64(b[88:], h.life)
	if h.clean {
		b[96] = 1
	}
	binary.LittleEndian.PutUint32(b[120:], crc32.ChecksumIEEE(b[:120]))
	return b
}

func parseSlot(b []byte) (name string, s *slot, err error) {
	if binary.LittleEndian.Uint32(b[96:]) != crc32.ChecksumIEEE(b[:96]) || b[0] > maxOrgName {
		return "", nil, errLedger
	}
	n := binary.LittleEndian
	return string(b[1 : 1+b[0]]), &slot{reserved: n.Uint64(b[64:]), counts: losses{n.Uint64(b[72:]), n.Uint64(b[80:]), n.Uint64(b[88:])}}, nil
}

func (s *slot) bytes(name string) []byte {
	b := make([]byte, slotSize)
	b[0] = byte(len(name))
	copy(b[1:64], name)
	for i, v := range []uint64{s.reserved, s.counts.lost, s.counts.budget, s.counts.unsure} {
		binary.LittleEndian.PutUint64(b[64+8*i:], v)
	}
	binary.LittleEndian.PutUint32(b[96:], crc32.ChecksumIEEE(b[:96]))
	return b
}

func text(b []byte) string {
	for i, c := range b {
		if c == 0 {
			return string(b[:i])
		}
	}
	return string(b)
}

// attach makes file the ledger's, and writes everything to it.
func (l *ledger) attach(file *os.File, head ledgerHead) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file != nil && l.file != file {
		l.file.Close()
	}
	l.file, l.head = file, head
	size := max(headSize+firstSlots*slotSize, headSize+len(l.slots)*slotSize)
	all := make([]byte, size)
	copy(all, head.bytes())
	for name, s := range l.slots {
		copy(all[headSize+s.place*slotSize:], s.bytes(name))
	}
	if err := l.file.Truncate(int64(size)); err != nil {
		return err
	}
	if _, err := l.file.WriteAt(all, 0); err != nil {
		return err
	}
	return l.file.Sync()
}

// lose counts n lines of an org that have no row. An error says that the count would not survive this process.
func (l *ledger) lose(org string, n uint64, budget bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	s, err := l.slot(org)
	if err != nil {
		return err
	}
	s.counts.lost += n
	if budget {
		s.counts.budget += n
	}
	return l.write(org, s)
}

// slot finds an org's, or makes it.
func (l *ledger) slot(org string) (*slot, error) {
	if s := l.slots[org]; s != nil {
		return s, nil
	}
	if len(l.slots) >= maxSlots || len(org) > maxOrgName {
		return nil, fmt.Errorf("%w: no place for another org", ErrUncounted)
	}
	s := &slot{place: len(l.slots)}
	l.slots[org] = s
	return s, nil
}

func (l *ledger) write(org string, s *slot) error {
	if l.file == nil {
		return ErrUncounted
	}
	if _, err := l.file.WriteAt(s.bytes(org), int64(headSize+s.place*slotSize)); err != nil {
		return fmt.Errorf("%w: %w", ErrUncounted, err)
	}
	return nil
}

// losses returns what an org has lost.
func (l *ledger) losses(org string) losses {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.slots[org]; s != nil {
		return s.counts
	}
	return losses{}
}

// reserved returns the last number that an org may draw.
func (l *ledger) reserved(org string) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.slots[org]; s != nil {
		return s.reserved
	}
	return 0
}

// reserve makes sure that numbers up to last may be drawn, also after the machine has crashed.
func (l *ledger) reserve(org string, last uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	s, err := l.slot(org)
	if err != nil || s.reserved >= last {
		return err
	}
	before := s.reserved
	s.reserved = last + block
	if err = l.write(org, s); err == nil {
		err = l.file.Sync()
	}
	if err != nil {
		s.reserved = before
		return fmt.Errorf("reserving sequence numbers: %w", err)
	}
	return nil
}

// skip leaves numbers out: nobody knows which of them were drawn.
func (l *ledger) skip(org string, n uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	s, err := l.slot(org)
	if err != nil {
		return err
	}
	s.counts.unsure += n
	return l.write(org, s)
}

// totals sums over all orgs.
func (l *ledger) totals() (sum losses) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.slots {
		sum.lost, sum.budget, sum.unsure = sum.lost+s.counts.lost, sum.budget+s.counts.budget, sum.unsure+s.counts.unsure
	}
	return sum
}

// flush writes what could not be written before.
func (l *ledger) flush() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all error
	for org, s := range l.slots {
		if err := l.write(org, s); err != nil {
			all = err
		}
	}
	return all
}

// close says that nothing is missing.
func (l *ledger) close() error {
	err := l.flush()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return nil
	}
	if err == nil {
		l.head.clean = true
		_, err = l.file.WriteAt(l.head.bytes(), 0)
	}
	err = errors.Join(err, l.file.Sync(), l.file.Close())
	l.file = nil
	return err
}
