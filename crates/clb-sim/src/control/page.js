// Whenever something happened, takes what is new of the page.
new EventSource("events").onmessage = async () => {
  const page = new DOMParser().parseFromString(await (await fetch("/")).text(), "text/html");
  document.querySelector("main").replaceWith(page.querySelector("main"));
};
