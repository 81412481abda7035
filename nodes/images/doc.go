// Package images keeps the root filesystems of sandboxes: unpacked once, named by digest, never changed.
//
//	store, err := images.Open(images.Config{Dir: state + "/images"})
//	img, err := store.BuildTiny(ctx, "/bin/busybox")   // in place at once
//	store.StartBase(ctx)                               // minutes; Resolve says ErrBuilding meanwhile
//	img, err = store.Import(ctx, "mine", tarStream)
//	img, err = store.Resolve("tiny")                   // img.Rootfs goes into the spec
//
// On disk: <digest>/rootfs, and names/<name>.json, which says which digest a name stands for or how its build goes.
//
// # Security invariants
//
//   - NI-1: unpacking writes nothing outside the image's own directory, whatever names and links say (TestUnpackStaysInside).
//   - NI-2: an unpacked image has no device nodes, and no file with a set-user or set-group bit (TestUnpackDropsDevicesAndIDBits).
//   - NI-3: what the node mounts over is a real directory or file of the image, never a link of its choosing (TestMountPointsAreReal).
//   - NI-4: an image appears under its digest complete or not at all (TestBrokenImportLeavesNothing, TestBaseFailureIsRecorded).
//   - NI-5: a build that ends, however it ends, leaves no process and no mount (TestCutOffBuildLeavesNothing).
//   - NI-6: a store has one owner, so that no build is taken for one that was cut off (TestStoreHasOneOwner).
//
// # Not here
//
// What runs in an image and as whom: nodes/runsc decides that without looking inside. Registries.
//
// # Failure
//
// A build that fails or is cut off, also by our own death, leaves a name that says so, and no directory, process or mount;
// it may be started again.
package images
