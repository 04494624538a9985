"""Images: open arrays and folders of pictures, and prepare batches of them."""
