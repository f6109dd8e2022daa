/* Search without a server: browsers refuse workers to pages that are opened as files, so the worker runs in a frame. */
class FrameWorker extends EventTarget {
  constructor(address) {
    super();
    this.frame = document.createElement("iframe");
    this.frame.hidden = true;
    document.body.append(this.frame);
    window.addEventListener("message", (event) => {
      if (event.source !== this.frame.contentWindow) return;
      this.dispatchEvent(new MessageEvent("message", { data: event.data }));
    });
    const written = this.frame.contentDocument;
    const loading = (it) => `<script src="${it}"></` + "script>";
    this.ready = new Promise((resolve) => this.frame.addEventListener("load", resolve));
    written.open();
    written.write(`<script>
      postMessage = (data) => parent.dispatchEvent(new MessageEvent("message", { data, source: window }));
    </` + `script>${loading(address)}`);
    written.close();
  }

  postMessage(data) {
    this.ready.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })));
  }

  terminate() {
    this.frame.remove();
  }
}

if (location.protocol === "file:") window.Worker = FrameWorker;
